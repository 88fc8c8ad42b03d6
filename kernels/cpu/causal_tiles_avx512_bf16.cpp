// Tiles of VDPBF16PS: half the instructions of floats, and panels of half the size.
#include <immintrin.h>

#include "kernels/cpu/causal_tiles.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

namespace dex {
namespace {

constexpr int kLanes = 16, kVectors = 4;
static_assert(kCausalWidth % (kVectors * kLanes) == 0);

template <int kRows>
void tile(const CausalTile& t) {
  const auto* left = static_cast<const int*>(t.left);
  const auto* panel = static_cast<const int*>(t.panel);
  __m512 sum[kRows][kVectors];
  for (auto& row : sum)
    for (auto& s : row) s = _mm512_setzero_ps();
  for (std::ptrdiff_t i = 0; i < t.units; ++i, panel += kVectors * kLanes) {
    __m512i column[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) column[v] = _mm512_load_si512(panel + v * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const auto x = (__m512bh)_mm512_set1_epi32(left[r * t.left_stride + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, (__m512bh)column[v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      _mm512_store_ps(t.out + r * t.out_stride + v * kLanes, sum[r][v]);
}

constexpr CausalTiles kTiles{
    .width = kVectors * kLanes,
    .depth = 2,
    .tile = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>}};

}  // namespace
}  // namespace dex

#pragma GCC pop_options

namespace dex {

const CausalTiles* bf16_causal_tiles() {
  static const bool supported =
      __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return supported ? &kTiles : nullptr;
}

}  // namespace dex
