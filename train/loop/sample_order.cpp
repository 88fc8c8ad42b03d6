#include "train/loop/sample_order.h"

#include "common/base/error.h"
#include "data/batch_plan.h"
#include "train/teacher/teacher_states.h"

namespace dex {

SampleOrder::SampleOrder(const TrainingData& data, std::uint64_t seed, int batch_size)
    : data_(data), seed_(seed), batch_size_(std::uint64_t(batch_size)) {
  require(data.size > 0, ExitCode::usage, "the data set has no sample to train on");
  epoch_steps_ = std::int64_t(steps_per_epoch(batch_size_, data.size));
}

std::vector<Sample> SampleOrder::samples(std::int64_t step) const {
  std::vector<Sample> samples;
  const auto epoch = std::uint64_t(step / epoch_steps_),
             in_epoch = std::uint64_t(step % epoch_steps_);
  for (std::uint64_t index : batch_indices(seed_, epoch, in_epoch, batch_size_, data_.size))
    samples.push_back(data_.sample(index));
  return samples;
}

std::vector<std::vector<Sample>> SampleOrder::first_passes(std::int64_t wanted,
                                                           int micro_batch) const {
  std::vector<std::vector<Sample>> passes;
  std::int64_t tokens = 0;
  for (std::int64_t step = 0; step < epoch_steps_ && tokens < wanted; ++step)
    for (Sample& sample : samples(step)) {
      if (tokens >= wanted) break;
      tokens += pass_tokens(sample);
      if (passes.empty() || passes.back().size() == std::size_t(micro_batch)) passes.emplace_back();
      passes.back().push_back(std::move(sample));
    }
  return passes;
}

}  // namespace dex
