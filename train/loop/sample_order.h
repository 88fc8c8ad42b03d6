// Which samples a step takes: a pure function of (seed, epoch, step).
#pragma once
#include <cstdint>
#include <vector>

#include "train/loop/training_data.h"

namespace dex {

class SampleOrder {
 public:
  // `data` must outlive it; a data set without a sample is Error(usage).
  SampleOrder(const TrainingData& data, std::uint64_t seed, int batch_size);

  std::int64_t epoch_steps() const { return epoch_steps_; }
  std::vector<Sample> samples(std::int64_t step) const;

  // Those of the first epoch's steps, in micro-batches, until they have so many tokens.
  std::vector<std::vector<Sample>> first_passes(std::int64_t tokens, int micro_batch) const;

 private:
  const TrainingData& data_;
  std::uint64_t seed_, batch_size_;
  std::int64_t epoch_steps_;
};

}  // namespace dex
