// What one step came to, put together on the leading rank from what each rank saw.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "train/distill_loss.h"
#include "train/ranks.h"

namespace dex {

struct StepReport {
  std::int64_t step = 0, rows = 0, tokens = 0, micro_batches = 0;
  double learning_rate = 0, seconds = 0;
  double flops = 0;      // of all ranks, as step_flops() counts them
  bool skipped = false;  // no update: the loss or the gradient is no number
  // Of all ranks:
  std::vector<double> loss, agreement;  // per depth, means over rows
  double mean_loss = 0, gradient_norm = 0;
  bool stop = false;  // a rank was asked to stop

  // Of this rank, in doubles: whether it was asked to stop; the squared norm of the gradient of each of its
  // exits; for each of its micro-batches and exits the sum of KL and the agreements.
  std::vector<double> own;
};

void add_own(StepReport& report, const DistillResult& micro_batch);

// Sends own to the leading rank.
void send_own(Ranks& ranks, const StepReport& report);
// On the leading rank: takes what the others sent of this step. Sums go by micro-batch, whoever made them.
void complete(StepReport& report, Ranks& ranks);

nlohmann::json to_json(const StepReport& report, const std::vector<int>& depths);

}  // namespace dex
