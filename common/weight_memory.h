// Memory for weights: in huge pages where the system gives them, because a decoder streams all weights for every token and
// spends more on looking up small pages than on the bytes.
#pragma once
#include <ATen/ATen.h>

#include <vector>

namespace dex {

// An uninitialised tensor. Tensors asked for one after the other lie one after the other, as they will be read.
at::Tensor empty_weights(const std::vector<std::int64_t>& shape, at::ScalarType type);

}  // namespace dex
