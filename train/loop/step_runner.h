// One optimizer step on this rank: its share of the passes, the sum of gradients over replicas, and
// the update that all ranks make or none.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "train/loop/pass_scheduler.h"
#include "train/loop/train_options.h"
#include "train/loss/adamw.h"
#include "train/loss/distill_loss.h"
#include "train/ranks/flat_adapters.h"
#include "train/reports/step_report.h"
#include "train/teacher/teacher_states.h"

namespace dex {

class StepRunner {
 public:
  StepRunner(const TrainOptions& options, const TeacherStates& source, PassScheduler scheduler,
             std::function<bool()> stop_wanted);

  // The steps that come are those from `first` on; nothing is begun of `end` and later ones.
  void start(std::int64_t first, std::int64_t end) { scheduler_.start(first, end); }

  // Changes the weights of this rank's exits, unless the report says `skipped`. One rank alone that
  // is asked to stop before the last micro-batch drops the step: nothing. Of several ranks all
  // finish it, and it says `stop` on all when one was asked; what is begun of later steps is not
  // needed then.
  std::optional<StepReport> run(std::int64_t index, double learning_rate,
                                const std::vector<AdapterWeights>& weights, AdamW& optimizer);

 private:
  std::optional<at::Tensor> gradient_of(const StepWork& work,
                                        const std::vector<AdapterWeights>& weights,
                                        StepReport& report);
  bool dropped() const { return ranks_.alone() && stop_wanted_(); }

  const Model& model_;
  RankMessages& ranks_;
  ExitSizes sizes_;  // of this rank's exits
  std::int64_t depths_;
  PassScheduler scheduler_;
  std::function<bool()> stop_wanted_;
  std::optional<DistillLoss> loss_;  // where there is an exit
};

}  // namespace dex
