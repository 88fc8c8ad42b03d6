// The samples of a step, shared out to micro-batches: a pure function, in which no rank comes.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "data/sample.h"

namespace dex {

struct Batch {  // of all replicas
  // of near-equal work; none when no sample has a loss row
  std::vector<std::vector<Sample>> micro_batches;
  std::int64_t rows = 0, tokens = 0;  // tokens: that go through the model
  double flops = 0;
};

struct MicroBatchLimits {
  std::size_t samples;
  std::int64_t tokens;  // of several samples; a longer one is alone
};

// `flops` is the work of a sample. As few micro-batches as the limits allow, neighbours near-equal
// together, too.
Batch make_batch(std::vector<Sample> samples, const MicroBatchLimits& most,
                 const std::function<double(const Sample&)>& flops);

}  // namespace dex
