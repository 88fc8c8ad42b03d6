#include "train/loop/best_adapters.h"

#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json_field.h"
#include "common/base/json_file.h"
#include "common/base/log.h"

namespace dex {
namespace {

constexpr const char* kFormat = "dex-best-1";
constexpr const char* kRecord = "best.json";

}  // namespace

BestAdapters::BestAdapters(std::filesystem::path dir, bool fresh) : dir_(std::move(dir)) {
  if (fresh) std::filesystem::remove_all(dir_);
  if (!std::filesystem::exists(dir_)) return;
  const std::string place = (dir_ / kRecord).string();
  try {
    const nlohmann::json record = read_json_object(dir_ / kRecord);
    const auto format = json_field<std::string>(record, "format", place);
    require(format == kFormat, ExitCode::io, "{}: format is \"{}\", wanted \"{}\"", place, format,
            kFormat);
    decs_hops_ =
        json_field<double>(json_field<nlohmann::json>(record, "scores", place), "decs_hops", place);
    const auto step = json_field<std::int64_t>(record, "step", place);
    read_adapter_file(dir_);
    step_ = step;
  } catch (const Error& error) {
    spdlog::warn("the best adapters so far do not count: {}", error.what());
  }
}

void BestAdapters::offer(std::int64_t step, const ExitScores& scores, const AdapterConfig& config,
                         const std::map<std::string, StoredTensor>& tensors) {
  if (step_ && scores.decs_hops >= decs_hops_) return;
  const std::filesystem::path fresh =
      dir_.parent_path() / ("." + dir_.filename().string() + ".tmp");
  std::filesystem::remove_all(fresh);  // of a killed run
  make_directory(fresh);
  write_adapter_file(fresh, config, tensors);
  write_file(
      fresh / kRecord,
      nlohmann::json{{"format", kFormat}, {"step", step}, {"scores", to_json(scores)}}.dump(2) +
          "\n");
  replace_directory(fresh, dir_);
  step_ = step;
  decs_hops_ = scores.decs_hops;
}

}  // namespace dex
