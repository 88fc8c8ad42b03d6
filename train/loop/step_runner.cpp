#include "train/loop/step_runner.h"

#include "common/base/stopwatch.h"
#include "train/ranks/pairwise_sum.h"
#include "train/ranks/replica_sum.h"

namespace dex {
namespace {

double square_sum(const AdapterWeights& gradient) {
  double sum = 0;
  for (const auto& [name, tensor] : gradient.named())
    sum += tensor.square().sum(at::kDouble).item<double>();
  return sum;
}

}  // namespace

StepRunner::StepRunner(const TrainOptions& options, const TeacherStates& source,
                       PassScheduler scheduler, std::function<bool()> stop_wanted)
    : model_(source.model()),
      ranks_(source.ranks()),
      sizes_{model_.exits(), model_.config.hidden_size,
             options.width_for(model_.config.hidden_size)},
      depths_(model_.depths.num_stages() - 1),
      scheduler_(std::move(scheduler)),
      stop_wanted_(std::move(stop_wanted)) {
  if (model_.head) loss_.emplace(*model_.head, options.tau);
}

// Nothing when the step is dropped; undefined when it has no rows or this rank no exits.
std::optional<at::Tensor> StepRunner::gradient_of(const StepWork& work,
                                                  const std::vector<AdapterWeights>& weights,
                                                  StepReport& report) {
  PairwiseSum gradient;
  for (std::int64_t i = work.mine.begin; i < work.mine.end; ++i) {
    if (dropped()) return std::nullopt;
    const HiddenRows hidden = scheduler_.next();
    if (sizes_.exits == 0) continue;
    at::Tensor part = at::zeros({sizes_.size()}, model_.device);
    auto views = adapter_views(part, sizes_);
    add_own(report, loss_->add_gradients(hidden.h_RD, hidden.final_RD, weights, report.rows, views,
                                         depths_));
    gradient.add(i, std::move(part));
  }
  if (sizes_.exits == 0 || report.micro_batches == 0) return at::Tensor();
  return replica_sum(ranks_, Tag::gradients, std::move(gradient), report.micro_batches,
                     sizes_.size());
}

std::optional<StepReport> StepRunner::run(std::int64_t index, double learning_rate,
                                          const std::vector<AdapterWeights>& weights,
                                          AdamW& optimizer) {
  const Stopwatch watch;
  ranks_.at(index);
  if (dropped()) return std::nullopt;
  const StepWork& work = scheduler_.enter();
  StepReport report{.step = index + 1,
                    .rows = work.batch.rows,
                    .tokens = work.batch.tokens,
                    .micro_batches = std::int64_t(work.batch.micro_batches.size()),
                    .learning_rate = learning_rate,
                    .flops = work.batch.flops};
  report.own.assign(1 + sizes_.exits, 0);
  const auto gradient = gradient_of(work, weights, report);
  if (!gradient) return std::nullopt;
  std::vector<AdapterWeights> gradients;
  if (gradient->defined()) gradients = adapter_views(*gradient, sizes_);
  for (std::size_t k = 0; k < gradients.size(); ++k) report.own[1 + k] = square_sum(gradients[k]);
  report.own[0] = !ranks_.alone() && stop_wanted_() ? 1 : 0;
  send_own(report, ranks_);
  scheduler_.begin_ahead();  // while the others' reports are on their way
  settle(report, ranks_);
  if (!gradients.empty() && !report.skipped) optimizer.step(gradients, learning_rate);
  scheduler_.leave();
  report.seconds = watch.seconds();
  return report;
}

}  // namespace dex
