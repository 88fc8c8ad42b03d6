// Memory for weights.
#pragma once
#include <ATen/ATen.h>

#include <vector>

namespace dex {

// An uninitialised tensor in huge pages. Tensors asked for one after the other lie one after the
// other, as they will be read.
at::Tensor empty_weights(const std::vector<std::int64_t>& shape, at::ScalarType type);

}  // namespace dex
