// The training run: start or resume, steps, evaluation, files.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/model/model.h"
#include "train/loop/best_adapters.h"
#include "train/loop/sample_order.h"
#include "train/loop/schedule.h"
#include "train/loop/step_runner.h"
#include "train/loop/train_options.h"
#include "train/loop/train_state.h"
#include "train/loop/training_data.h"
#include "train/loss/adamw.h"
#include "train/ranks/flat_adapters.h"
#include "train/ranks/machine_speeds.h"
#include "train/ranks/ranks.h"
#include "train/reports/evaluation.h"
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
            std::function<bool()> stop_wanted, Ranks ranks, MachineSpeeds speeds = {});

  void prepare();  // the start or the newest checkpoint; run() does it where it was not done
  TrainOutcome run();

 private:
  void open_cache();
  Batch batch_of(std::int64_t step) const;
  std::vector<AdapterWeights> start();
  std::string found_checkpoint();  // its name, or nothing: what the leading rank sees
  void open_report(bool fresh);
  bool train();                        // false when stopped
  bool train_until(std::int64_t end);  // false when stopped before
  void take_in(const StepReport& step);
  void pass_over(const StepReport& step);  // a step that is no number: skip it or end the run
  bool evaluation_due() const;             // between two steps
  void score(const std::vector<ExitSet>& sets);
  void save();
  void wait_for_files();
  AdapterConfig adapter_config() const;
  // on the leading rank
  std::vector<AdapterWeights> of_all_ranks(const std::vector<AdapterWeights>& own);
  TrainOutcome outcome(bool finished) const;
  ExitSizes sizes(std::int64_t exits) const;

  TrainOptions options_;
  const Model& model_;
  Ranks ranks_;
  TrainingData data_;
  std::function<bool()> stop_wanted_;
  std::vector<int> depths_, own_depths_;  // the non-final ones, of the model and of this rank
  SampleOrder order_;
  std::int64_t total_steps_;
  Schedule schedule_;
  std::optional<StateCache> cache_;
  TeacherStates source_;
  StepRunner steps_;
  nlohmann::json identity_;
  MachineSpeeds speeds_;

  TrainState state_;
  std::vector<AdapterWeights> weights_;  // of own_depths_
  std::optional<AdamW> optimizer_;
  std::optional<DirectoryLock> lock_;  // of --out, on the leading rank
  std::optional<RunReport> report_;    // the leading rank's
  std::optional<BestAdapters> best_;   // the leading rank's
  std::int64_t saved_step_ = -1;
};

}  // namespace dex
