// What one step came to, put together on the leading rank from what each rank saw.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "train/loss/distill_loss.h"
#include "train/ranks/rank_messages.h"

namespace dex {

struct StepReport {
  std::int64_t step = 0, rows = 0, tokens = 0, micro_batches = 0;
  double learning_rate = 0, seconds = 0;
  double flops = 0;  // of all ranks, as step_flops() counts them

  // Of all ranks, on all of them once settled:
  double mean_loss = 0, gradient_norm = 0;
  // no update: the loss or the gradient is no number, or would overflow the moments
  bool skipped = false;
  bool stop = false;  // a rank was asked to stop
  // On the leading rank:
  std::vector<double> loss, agreement;  // per depth, means over rows

  // Of this rank, in doubles: whether it was asked to stop; the squared norm of the gradient of
  // each of its exits; for each of its micro-batches and exits the sum of KL and the agreements.
  std::vector<double> own;
};

void add_own(StepReport& report, const DistillResult& micro_batch);

// The end of a step, before the update, on all ranks: each sends what it saw, then all learn what
// the step came to. Sums go by exit and micro-batch, whoever made them.
void send_own(const StepReport& report, RankMessages& ranks);
void settle(StepReport& report, RankMessages& ranks);

nlohmann::json to_json(const StepReport& report, const std::vector<int>& depths);

}  // namespace dex
