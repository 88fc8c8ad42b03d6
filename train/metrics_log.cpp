#include "train/metrics_log.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "common/file.h"

namespace dex {
namespace {

// A line too torn to be JSON belongs to no step.
bool belongs(const std::string& line, std::int64_t step) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("step") && json["step"].is_number_integer() && json["step"].get<std::int64_t>() <= step;
}

std::string kept_lines(const std::filesystem::path& path, std::int64_t step) {
  std::istringstream lines(read_file(path));
  std::string kept;
  for (std::string line; std::getline(lines, line);)
    if (belongs(line, step)) kept += line + "\n";
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

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t step)
    : path_(path), events_(path.parent_path() / "tensorboard", step) {
  remove_temporaries(path);
  write_file(path, std::filesystem::exists(path) ? kept_lines(path, step) : "");
}

void MetricsLog::write(const nlohmann::json& line) {
  append_file(path_, line.dump() + "\n");
  events_.write(line.at("step"), scalars_of(line));
}

}  // namespace dex
