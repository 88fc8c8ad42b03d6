// How much arithmetic training does, and how much of it the machine could do: model FLOPs utilisation.
#pragma once
#include <cstdint>
#include <span>

#include "common/config.h"
#include "data/sample.h"
#include "kernels/types.h"

namespace dex {

// Operations of a step, a multiply and an add being two: the frozen model forward over every token, causal
// attention over the keys it needs, teacher logits once and per exit logits and their gradient, adapters
// forward and backward. Norms, softmax and the optimizer are left out.
double step_flops(const ModelConfig& config, int num_exits, std::int64_t width, std::int64_t vocab,
                  std::span<const Sample> samples);

// The best of several matrix products of 1024 x 1024 by libtorch with its threads as they are set, operations
// per second.
double measure_gemm_peak(Dtype dtype);

}  // namespace dex
