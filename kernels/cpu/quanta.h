// How x meets i8 weights, on every device: a chunk of `in` becomes integers up to kMaxQuantum, of
// one scale. Chunks end at multiples of kQuantaChunk.
#pragma once
#include <cstdint>

namespace dex {

constexpr int kQuantaChunk = 512;
constexpr int kMaxQuantum = 32767;
// a chunk without a larger value counts as zero: its scale would not be a normal number
constexpr float kSmallestChunk = 1e-30f;

static_assert(std::int64_t{kQuantaChunk} * kMaxQuantum * 127 < std::int64_t{1} << 31,
              "sums of a chunk are exact in 32 bits");

}  // namespace dex
