// How much arithmetic training does, and how much of it the machine could do: model FLOPs
// utilisation.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <span>

#include "common/model/config.h"
#include "data/sample.h"
#include "kernels/types.h"
#include "train/ranks/flat_adapters.h"

namespace dex {

// Operations, a multiply and an add being two; norms, softmax and the optimizer are left out.
double layer_parameters(const ModelConfig& config);  // of the matrices of one layer
// Of a sequence through frozen layers, with causal attention over the keys it needs.
double layers_flops(const ModelConfig& config, int layers, double length);
// Of rows at exits of one rank: teacher logits once, per exit logits and their gradient, adapters
// forward and backward.
double exits_flops(const ExitSizes& exits, std::int64_t vocab, double rows);
// Of a step, as if one rank had all `exits`.
double step_flops(const ModelConfig& config, const ExitSizes& exits, std::int64_t vocab,
                  std::span<const Sample> samples);

// Rows, columns and inner size of the matrix product that shows what a device can do.
inline std::int64_t peak_gemm_size(at::Device device) { return device.is_cpu() ? 1024 : 8192; }
// The best of several by libtorch with its threads as they are set, operations per second.
double measure_gemm_peak(Dtype dtype, at::Device device);

}  // namespace dex
