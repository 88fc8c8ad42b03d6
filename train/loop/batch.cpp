#include "train/loop/batch.h"

#include <algorithm>

#include "data/batch_plan.h"
#include "kernels/ceil_div.h"
#include "train/teacher/teacher_states.h"

namespace dex {
namespace {

using Parts = std::vector<std::vector<std::size_t>>;

Parts share_out(const std::vector<Sample>& samples, const std::vector<double>& flops,
                const MicroBatchLimits& most) {
  const auto fits = [&](const std::vector<std::size_t>& part) {
    std::int64_t tokens = 0;
    for (std::size_t i : part) tokens += pass_tokens(samples[i]);
    return part.size() == 1 || tokens <= most.tokens;
  };
  for (std::size_t parts = ceil_div(samples.size(), most.samples);; ++parts) {
    Parts split = split_evenly(flops, parts, most.samples);
    if (parts == samples.size() || std::all_of(split.begin(), split.end(), fits)) return split;
  }
}

}  // namespace

Batch make_batch(std::vector<Sample> samples, const MicroBatchLimits& most,
                 const std::function<double(const Sample&)>& flops_of) {
  std::vector<double> flops;
  Batch batch;
  for (const Sample& sample : samples) {
    batch.rows += loss_rows(sample);
    batch.tokens += pass_tokens(sample);
    batch.flops += flops.emplace_back(flops_of(sample));
  }
  if (batch.rows == 0) return {};
  for (const auto& part : share_out(samples, flops, most)) {
    auto& micro_batch = batch.micro_batches.emplace_back();
    for (std::size_t i : part) micro_batch.push_back(std::move(samples[i]));
  }
  return batch;
}

}  // namespace dex
