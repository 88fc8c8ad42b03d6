// The adapters of several exits as one vector: what is summed and sent.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "common/model/adapter.h"
#include "kernels/ceil_div.h"

namespace dex {

struct ExitSizes {
  std::int64_t exits = 0, hidden = 0, width = 0;
  // of one exit
  std::int64_t parameters() const { return 2 * hidden * width + 2 * hidden + width + 1; }
  // All exits begin at the same alignment, which gives them the same bits.
  std::int64_t stride() const { return ceil_div<std::int64_t>(parameters(), 16) * 16; }
  std::int64_t size() const { return exits * stride(); }
};

// Views of `vector`, which has sizes.size() values.
std::vector<AdapterWeights> adapter_views(const at::Tensor& vector, const ExitSizes& sizes);

at::Tensor flat_adapters(const std::vector<AdapterWeights>& exits);  // a copy, on the CPU
// The same as tensors of their own.
std::vector<AdapterWeights> adapters_of(const at::Tensor& vector, const ExitSizes& sizes);

// Tensors that are on the device already are shared.
std::vector<AdapterWeights> on_device(std::vector<AdapterWeights> exits, at::Device device);

}  // namespace dex
