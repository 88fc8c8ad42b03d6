// metrics.jsonl: a JSON object per line, each with the step it belongs to; and the same numbers for
// TensorBoard.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "train/reports/event_file.h"

namespace dex {

class MetricsLog {
 public:
  // Goes on after `step`, -1 where a run starts over: lines of later steps, which an interrupted
  // run wrote but did not save, are dropped, and so is a torn last line, and the evaluation after
  // `step` where it is made again. Event files lie in `tensorboard` beside `path`.
  MetricsLog(const std::filesystem::path& path, std::int64_t step, bool evaluates_again = false);
  void write(const nlohmann::json& line);  // Error(io) when it does not reach the file

 private:
  std::filesystem::path path_;
  EventFile events_;
};

// Every number of a line but its step, tagged by its way through the objects: "loss_by_depth/10".
Scalars scalars_of(const nlohmann::json& line);

}  // namespace dex
