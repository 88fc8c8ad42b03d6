// Weights as the CPU's linear reads them. A panel holds kPanel outputs side by side, one step along
// `in` after the other, so that a matrix is one stream and an output has a vector lane of its own.
// A step is one element of `in` for f32, two neighbouring ones for the smaller types.
#pragma once
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/types.h"

namespace dex {

constexpr int kPanel = 32;

constexpr int step_of(Dtype dtype) { return dtype == Dtype::f32 ? 1 : 2; }
constexpr std::int64_t steps_of(std::int64_t in, Dtype dtype) {
  return ceil_div(in, step_of(dtype));
}
constexpr std::int64_t panels_of(std::int64_t out) { return ceil_div(out, kPanel); }

// Elements of a packed matrix; zeros fill the last panel and an odd `in`.
constexpr std::int64_t packed_elements(std::int64_t out, std::int64_t in, Dtype dtype) {
  return panels_of(out) * steps_of(in, dtype) * step_of(dtype) * kPanel;
}
// Where element (o, k) of a matrix with `in` columns lies.
constexpr std::int64_t packed_index(std::int64_t o, std::int64_t k, std::int64_t in, Dtype dtype) {
  const int step = step_of(dtype);
  return ((o / kPanel * steps_of(in, dtype) + k / step) * kPanel + o % kPanel) * step + k % step;
}

// rows (out, in) -> packed, both of dtype.
void pack_panels(const void* rows, void* packed, std::int64_t out, std::int64_t in, Dtype dtype);
// Output o of a packed matrix -> row (in).
void unpack_row(const void* packed, void* row, std::int64_t o, std::int64_t in, Dtype dtype);

}  // namespace dex
