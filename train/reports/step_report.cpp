#include "train/reports/step_report.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace dex {
namespace {

nlohmann::json by_depth(const std::vector<int>& depths, const std::vector<double>& values) {
  nlohmann::json object = nlohmann::json::object();
  for (std::size_t k = 0; k < depths.size(); ++k) object[std::to_string(depths[k])] = values[k];
  return object;
}

// of a gradient; a larger one would overflow the second moments
constexpr double kLargestNorm = 1e18;

// Adds the part of one rank, whose exits are those from `first` on. All replicas have the same
// gradients.
void add_part(StepReport& r, const double* value, std::size_t first, std::size_t exits,
              std::int64_t passes, std::vector<double>& squares) {
  r.stop = *value++ != 0 || r.stop;
  for (std::size_t k = first; k < first + exits; ++k) squares[k] = *value++;
  for (std::int64_t pass = 0; pass < passes; ++pass)
    for (std::size_t k = first; k < first + exits; ++k) {
      r.loss[k] += *value++ / double(r.rows);
      r.agreement[k] += *value++ / double(r.rows);
    }
}

// Takes what the others sent of this step.
void complete(StepReport& r, RankMessages& ranks) {
  const RankLayout& layout = ranks.layout();
  const auto depths = std::size_t(layout.first_exit(layout.pipeline));
  r.loss.assign(depths, 0);
  r.agreement.assign(depths, 0);
  std::vector<double> squares(depths);
  for (int pipeline_rank = 0; pipeline_rank < layout.pipeline; ++pipeline_rank) {
    const int exits = layout.exits(pipeline_rank);
    for (int replica = 0; replica < layout.replicas(); ++replica) {
      const int rank = layout.rank_at(replica, pipeline_rank);
      const std::int64_t passes = share_of(r.micro_batches, layout, replica).size();
      at::Tensor theirs;
      if (rank != layout.rank)
        theirs = ranks.receive(Tag::report, rank, {1 + exits * (1 + 2 * passes)}, at::kDouble);
      const double* values = rank == layout.rank ? r.own.data() : theirs.data_ptr<double>();
      add_part(r, values, std::size_t(layout.first_exit(pipeline_rank)), std::size_t(exits), passes,
               squares);
    }
  }
  r.gradient_norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  r.mean_loss = std::accumulate(r.loss.begin(), r.loss.end(), 0.0) / double(depths);
  r.skipped = !std::isfinite(r.mean_loss) || !(r.gradient_norm <= kLargestNorm);
}

}  // namespace

void add_own(StepReport& report, const DistillResult& micro_batch) {
  for (std::size_t k = 0; k < micro_batch.kl.size(); ++k) {
    report.own.push_back(micro_batch.kl[k]);
    report.own.push_back(double(micro_batch.agreements[k]));
  }
}

void send_own(const StepReport& report, RankMessages& ranks) {
  if (!ranks.leads()) ranks.send(Tag::report, at::tensor(report.own, at::kDouble), 0);
}

void settle(StepReport& r, RankMessages& ranks) {
  if (ranks.leads()) {
    complete(r, ranks);
    const std::vector<double> decision{r.mean_loss, r.gradient_norm, double(r.skipped),
                                       double(r.stop)};
    for (int rank = 1; rank < ranks.layout().world; ++rank)
      ranks.send(Tag::decision, at::tensor(decision, at::kDouble), rank);
    return;
  }
  const at::Tensor decision = ranks.receive(Tag::decision, 0, {4}, at::kDouble);
  const double* value = decision.data_ptr<double>();
  r.mean_loss = value[0];
  r.gradient_norm = value[1];
  r.skipped = value[2] != 0;
  r.stop = value[3] != 0;
}

nlohmann::json to_json(const StepReport& r, const std::vector<int>& depths) {
  const double speed = r.seconds > 0 ? double(r.tokens) / r.seconds : 0;
  nlohmann::json line = {{"step", r.step},
                         {"learning_rate", r.learning_rate},
                         {"rows", r.rows},
                         {"tokens", r.tokens},
                         {"loss", r.mean_loss},
                         {"loss_by_depth", by_depth(depths, r.loss)},
                         {"agreement", by_depth(depths, r.agreement)},
                         {"gradient_norm", r.gradient_norm},
                         {"seconds", r.seconds},
                         {"tokens_per_second", speed},
                         {"flops", r.flops}};
  if (r.skipped) line["skipped"] = 1;
  return line;
}

}  // namespace dex
