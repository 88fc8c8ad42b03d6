// How x meets i8 weights, on every device: a chunk of `in` (input_parts.h) becomes integers up to
// kMaxQuantum, of one scale.
#pragma once
#include <cstdint>

#include "kernels/input_parts.h"

namespace dex {

constexpr int kMaxQuantum = 32767;
// a chunk without a larger value counts as zero: its scale would not be a normal number
constexpr float kSmallestChunk = 1e-30f;

static_assert(std::int64_t{kInputChunk} * kMaxQuantum * 127 < std::int64_t{1} << 31,
              "sums of a chunk are exact in 32 bits");

}  // namespace dex
