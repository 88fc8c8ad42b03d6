// The training run: start or resume, steps, evaluation, files.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "train/loop/learner.h"
#include "train/loop/run_directory.h"
#include "train/loop/schedule.h"
#include "train/loop/step_runner.h"
#include "train/loop/train_setup.h"
#include "train/reports/run_report.h"
#include "train/teacher/state_cache.h"
#include "train/teacher/teacher_states.h"

namespace dex {

struct TrainOutcome {
  bool finished = false;   // false: stopped after saving, --resume goes on
  nlohmann::json summary;  // the final line; on other ranks than the leading one the step alone
};

class TrainLoop {
 public:
  TrainLoop(const TrainLoop&) = delete;

  // Leaves out/adapter_config.json and adapter_model.safetensors, out/checkpoints/step-N, out/best,
  // out/metrics.jsonl and out/tensorboard, all written by the leading rank, whose `speeds` are
  // reported. All ranks construct and run it; a rank that was asked for another run is Error(usage)
  // on all. When `stop_wanted` says so on any rank, all save and leave: one rank alone drops the
  // unfinished step, several finish it. An unfinished evaluation is Error(temporary); a run that
  // goes on makes it again.
  TrainLoop(const TrainOptions& options, const Model& model, TrainingData data,
            std::function<bool()> stop_wanted);
  TrainLoop(const TrainOptions& options, const Model& model, TrainingData data,
            std::function<bool()> stop_wanted, RankMessages ranks, MachineSpeeds speeds = {});

  void prepare();  // the start or the newest checkpoint; run() does it where it was not done
  TrainOutcome run();

 private:
  void open_cache();
  void open_report(bool fresh);
  bool train();                        // false when stopped
  bool train_until(std::int64_t end);  // false when stopped before
  void count(const StepReport& step);
  void skip_or_fail(const StepReport& step);  // its loss or gradient is no number
  bool evaluation_due() const;                // between two steps
  void evaluate_start();
  void evaluate(const std::vector<ExitSet>& sets);
  void save();
  TrainOutcome outcome(bool finished) const;

  TrainSetup setup_;
  Schedule schedule_;
  std::optional<StateCache> cache_;
  TeacherStates source_;
  StepRunner steps_;
  RunDirectory directory_;
  MachineSpeeds speeds_;
  Learner learner_;
  std::optional<RunReport> report_;  // of the leading rank
};

}  // namespace dex
