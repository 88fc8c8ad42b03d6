#include "train/reports/metrics_log.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "common/base/file.h"

namespace dex {
namespace {

// A line too torn to be JSON belongs to no step.
bool belongs(const std::string& line, std::int64_t step, bool evaluates_again) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
    return false;
  const auto its = json["step"].get<std::int64_t>();
  return its < step || (its == step && !(evaluates_again && json.contains("evaluation")));
}

std::string kept_lines(const std::filesystem::path& path, std::int64_t step, bool evaluates_again) {
  std::istringstream lines(read_file(path));
  std::string kept;
  for (std::string line; std::getline(lines, line);)
    if (belongs(line, step, evaluates_again)) kept += line + "\n";
  return kept;
}

void add_scalars(const std::string& tag, const nlohmann::json& value, Scalars& scalars) {
  if (value.is_number()) scalars.emplace_back(tag, value.get<double>());
  if (value.is_object() || value.is_array())
    for (const auto& [key, part] : value.items()) add_scalars(tag + "/" + key, part, scalars);
}

}  // namespace

Scalars scalars_of(const nlohmann::json& line) {
  Scalars scalars;
  for (const auto& [key, value] : line.items())
    if (key != "step") add_scalars(key, value, scalars);
  return scalars;
}

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t step, bool evaluates_again)
    : path_(path), events_(path.parent_path() / "tensorboard", step) {
  remove_temporaries(path);
  write_file(path, std::filesystem::exists(path) ? kept_lines(path, step, evaluates_again) : "");
}

void MetricsLog::write(const nlohmann::json& line) {
  append_file(path_, line.dump() + "\n");
  events_.write(line.at("step"), scalars_of(line));
}

}  // namespace dex
