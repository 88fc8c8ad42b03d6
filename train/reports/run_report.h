// What an operator sees of a run, told by the leading rank: metrics.jsonl, the live line, the last
// line.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/progress.h"
#include "common/base/stopwatch.h"
#include "train/loop/train_state.h"
#include "train/reports/evaluation.h"
#include "train/reports/live_line.h"
#include "train/reports/machine_speeds.h"
#include "train/reports/metrics_log.h"
#include "train/reports/step_report.h"

namespace dex {

class RunReport {
 public:
  // `ranks` work together, each with the speeds measured here.
  RunReport(MetricsLog metrics, std::vector<int> depths, std::int64_t epoch_steps,
            MachineSpeeds speeds, int ranks);

  void begin(std::int64_t step, std::int64_t last);  // of the steps that this process makes
  void add(const StepReport& step);
  void add(std::int64_t step, const NamedScores& evaluation);
  void end();

  std::string evaluation_text(const TrainState& state) const;  // tables of scores and forecasts
  nlohmann::json summary(const TrainState& state) const;       // depths, speed, scores, forecast

 private:
  MetricsLog metrics_;
  std::vector<int> depths_;
  std::int64_t epoch_steps_;
  MachineSpeeds speeds_;
  LiveLine live_;
  std::optional<Progress> progress_;
  Stopwatch watch_;
  double seconds_ = 0;  // from begin() to end(), evaluations and saves between the steps included
  std::int64_t first_step_ = 0, tokens_ = 0;
  std::optional<double> last_loss_;
};

}  // namespace dex
