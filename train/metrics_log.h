// metrics.jsonl: a JSON object per line, each with the step it belongs to.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace dex {

class MetricsLog {
 public:
  // Goes on after `step`: lines of later steps, which an interrupted run wrote but did not save, are dropped, and so is
  // a torn last line.
  MetricsLog(const std::filesystem::path& path, std::int64_t step);
  void write(const nlohmann::json& line);  // Error(io) when it does not reach the file

 private:
  std::filesystem::path path_;
};

}  // namespace dex
