// The training run: start or resume, steps, evaluation, files. Sample order is a pure function of (seed, epoch, step).
#pragma once
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "common/model.h"
#include "train/adamw.h"
#include "train/best_adapters.h"
#include "train/distill_loss.h"
#include "train/evaluation.h"
#include "train/hidden_source.h"
#include "train/live_line.h"
#include "train/machine_speeds.h"
#include "train/metrics_log.h"
#include "train/schedule.h"
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
  // Leaves out/adapter_config.json and adapter_model.safetensors, out/checkpoints/step-N, out/best, out/metrics.jsonl and
  // out/tensorboard.
  // `stop_wanted` is asked between micro-batches: an unfinished step is dropped, the finished ones are saved.
  TrainLoop(const TrainOptions& options, const Model& model, TrainingData data, std::function<bool()> stop_wanted,
            MachineSpeeds speeds = {});

  TrainOutcome run();

 private:
  struct StepReport {
    std::int64_t rows = 0, tokens = 0;
    std::vector<double> loss, agreement;  // per depth, means over rows
    double mean_loss = 0, gradient_norm = 0, learning_rate = 0, seconds = 0, flops = 0;
    bool skipped = false;  // no update: its loss or gradient is no number
  };

  void start_or_resume();
  std::vector<AdapterWeights> start() const;
  std::vector<AdapterWeights> ridge_start() const;
  std::vector<Sample> samples_of(std::int64_t step) const;
  std::optional<StepReport> step(std::int64_t index);  // nothing when asked to stop half-way
  bool train();                                        // false when stopped
  void pass_over(const StepReport& report);            // a step that is no number: skip it or stop here
  void record(const StepReport& report);
  void score(const std::vector<ExitSet>& sets);  // into state_.evaluation
  void save();
  AdapterConfig adapter_config() const;
  void write_adapters() const;
  nlohmann::json summary(bool finished, double seconds, std::int64_t tokens_before) const;
  std::vector<std::pair<std::string, ExitScores>> score_lines() const;

  TrainOptions options_;
  const Model& model_;
  TrainingData data_;
  std::function<bool()> stop_wanted_;
  std::vector<int> depths_;  // the non-final ones
  std::int64_t epoch_steps_, total_steps_;
  Schedule schedule_;
  HiddenSource source_;
  DistillLoss loss_;
  nlohmann::json identity_;
  MachineSpeeds speeds_;
  LiveLine live_;

  TrainState state_;
  std::vector<AdapterWeights> weights_, gradients_;
  std::optional<AdamW> optimizer_;
  std::optional<MetricsLog> metrics_;
  std::optional<BestAdapters> best_;
  std::optional<StepReport> last_;
  std::int64_t saved_step_ = -1;
};

}  // namespace dex
