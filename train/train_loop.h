// The training run: start or resume, steps, evaluation, files. Sample order is a pure function of (seed,
// epoch, step).
#pragma once
#include <deque>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "common/model.h"
#include "common/progress.h"
#include "train/adamw.h"
#include "train/best_adapters.h"
#include "train/distill_loss.h"
#include "train/evaluation.h"
#include "train/exit_vector.h"
#include "train/feed.h"
#include "train/hidden_source.h"
#include "train/live_line.h"
#include "train/machine_speeds.h"
#include "train/metrics_log.h"
#include "train/ranks.h"
#include "train/schedule.h"
#include "train/step_report.h"
#include "train/train_options.h"
#include "train/train_state.h"
#include "train/training_data.h"

namespace dex {

struct TrainOutcome {
  bool finished = false;   // false: stopped after saving, --resume goes on
  nlohmann::json summary;  // the final line
};

class TrainLoop {
 public:
  TrainLoop(const TrainLoop&) = delete;

  // Leaves out/adapter_config.json and adapter_model.safetensors, out/checkpoints/step-N, out/best,
  // out/metrics.jsonl and out/tensorboard, all written by the leading rank, whose `speeds` are reported. All ranks construct and run it; a rank that was asked
  // for another run is Error(usage) on all. `stop_wanted` is asked between micro-batches by one rank alone:
  // an unfinished step is dropped, the finished ones are saved. Several ranks finish the steps they have
  // begun.
  TrainLoop(const TrainOptions& options, const Model& model, TrainingData data,
            std::function<bool()> stop_wanted);
  TrainLoop(const TrainOptions& options, const Model& model, TrainingData data,
            std::function<bool()> stop_wanted, Ranks ranks, MachineSpeeds speeds = {});

  void prepare();      // the start or the newest checkpoint; run() does it where it was not done
  TrainOutcome run();  // the summary is the leading rank's

 private:
  std::vector<AdapterWeights> start();
  std::vector<std::vector<Sample>> ridge_samples() const;  // by pass
  std::vector<Sample> samples_of(std::int64_t step) const;
  std::optional<StepReport> step(std::int64_t index);  // nothing when asked to stop before it or half-way
  void update(StepReport& report, const at::Tensor& gradient);  // an optimizer step
  bool train();                                                 // false when stopped
  bool train_until(std::int64_t end);
  void settle(std::size_t open);  // complete and record all reports but the `open` newest
  void pass_over(const StepReport& report);  // a step that is no number: skip it or stop here
  void record(const StepReport& report);
  void score(const std::vector<ExitSet>& sets);  // into state_.evaluation
  void score_here(const std::vector<ExitSet>& sets);  // on the leading rank; the others serve_score()
  void serve_score();
  void save();
  AdapterConfig adapter_config() const;
  void write_adapters(const std::vector<AdapterWeights>& all) const;
  std::vector<AdapterWeights> of_all_ranks(const std::vector<AdapterWeights>& own);  // on the leading rank
  nlohmann::json summary(bool finished, double seconds, std::int64_t tokens_before) const;
  std::vector<std::pair<std::string, ExitScores>> score_lines() const;
  std::int64_t width() const { return options_.width > 0 ? options_.width : 2 * model_.config.hidden_size; }
  ExitSizes sizes(int exits) const { return {exits, model_.config.hidden_size, width()}; }
  ExitSizes own_sizes() const { return sizes(static_cast<int>(own_depths_.size())); }

  TrainOptions options_;
  const Model& model_;
  Ranks ranks_;
  TrainingData data_;
  std::function<bool()> stop_wanted_;
  std::vector<int> depths_, own_depths_;  // the non-final ones, of the model and of this rank
  std::int64_t epoch_steps_, total_steps_;
  Schedule schedule_;
  HiddenSource source_;
  Feed feed_;
  std::optional<DistillLoss> loss_;  // where there is an exit
  nlohmann::json identity_;
  MachineSpeeds speeds_;
  LiveLine live_;

  TrainState state_;
  std::vector<AdapterWeights> weights_;  // of own_depths_
  std::optional<AdamW> optimizer_;
  std::optional<MetricsLog> metrics_;  // the leading rank's
  std::optional<BestAdapters> best_;   // the leading rank's
  std::optional<Progress> progress_;   // the leading rank's
  std::deque<StepReport> open_;        // finished steps that other ranks have not reported of
  std::optional<StepReport> last_;
  std::int64_t saved_step_ = -1;
  std::int64_t first_step_ = 0;  // of this process
  bool peer_stops_ = false;  // another rank was asked to stop
};

}  // namespace dex
