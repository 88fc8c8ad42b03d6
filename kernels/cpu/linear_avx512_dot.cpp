// VPDPWSSD multiplies 32 pairs of 16-bit integers and adds them into 16 integers: half the
// instructions of the vector path. Highway 1.0.3 does not offer it, hence intrinsics. For bf16
// there is VDPBF16PS; where it was measured it takes longer than what it replaces.
#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/linear_tiles.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,avx2")

namespace dex {
namespace {

constexpr int kLanes = 16;  // outputs of a vector, a pair of products each
constexpr int kRowSteps = kInputChunk / 2;

__m512i load(const std::int8_t* w) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
}

// (rows, vectors): two vectors a panel
template <int kRows, int kVectors>
using Totals = __m512[kRows][kVectors];

template <int kRows, int kVectors>
[[gnu::always_inline]] inline void add_kept(Totals<kRows, kVectors>& sum, const float* kept) {
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = _mm512_add_ps(_mm512_loadu_ps(kept + (r * kVectors + v) * kLanes), sum[r][v]);
}

template <int kRows, int kVectors>
[[gnu::always_inline]] inline void keep(const Totals<kRows, kVectors>& sum, float* kept) {
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      _mm512_storeu_ps(kept + (r * kVectors + v) * kLanes, sum[r][v]);
}

[[gnu::always_inline]] inline void finish(const LinearTile& t, float* y, int out, __m512 sum) {
  const int outs = t.outs - out;
  const __mmask16 valid = outs >= kLanes ? 0xffff
                          : outs <= 0    ? 0
                                         : static_cast<__mmask16>((1u << outs) - 1);
  if (t.scales) sum = _mm512_mul_ps(sum, _mm512_maskz_loadu_ps(valid, t.scales + out));
  if (t.bias) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(valid, t.bias + out));
  _mm512_mask_storeu_ps(y + out, valid, sum);
}

// What becomes of a chunk's sum.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void end_chunk(const LinearTile& t, const SumChunk& chunk,
                                             Totals<kRows, kVectors>& sum) {
  float* place = t.kept + chunk.place * t.place_stride;
  if (!chunk.first) add_kept<kRows, kVectors>(sum, place);
  for (int m = 0; m < chunk.merges; ++m) add_kept<kRows, kVectors>(sum, place -= t.place_stride);
  if (!chunk.ends_sum) return keep<kRows, kVectors>(sum, place);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) finish(t, t.y + r * t.y_stride, v * kLanes, sum[r][v]);
}

template <int kRows, int kPanels>
void tile(const LinearTile& t) {
  static_assert(kPanel == 2 * kLanes);
  constexpr int kVectors = 2 * kPanels;
  const auto* x = static_cast<const std::int32_t*>(t.x);
  const auto* w = static_cast<const std::int8_t*>(t.weight);
  const float* x_scales = t.x_scales;
  const char* ahead = t.ahead;
  for (const SumChunk* chunk = t.chunks; chunk != t.chunks + t.chunk_count; ++chunk) {
    __m512i sum[kRows][kVectors];
    for (auto& row : sum)
      for (auto& s : row) s = _mm512_setzero_si512();
    const auto step = [&] {
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) {
        const auto* panel = w + p * t.panel_stride;
        fetch_stream<kRows, kPanels>(panel);
        const __m512i low = load(panel), high = load(panel + kPanel);
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
          const __m512i row = _mm512_set1_epi32(x[r * kRowSteps]);
          sum[r][2 * p] = _mm512_dpwssd_epi32(sum[r][2 * p], row, low);
          sum[r][2 * p + 1] = _mm512_dpwssd_epi32(sum[r][2 * p + 1], row, high);
        }
      }
      ++x;
      w += 2 * kPanel;
    };
    int steps = (chunk->count + 1) / 2;
    for (; steps >= kGroup;
         steps -= kGroup, ahead += t.ahead_lines * ahead_plan(kRows, Dtype::i8).every) {
#pragma GCC unroll 4
      for (int s = 0; s < kGroup; ++s) {
        if constexpr (kPanels == 1) fetch_ahead<kRows, Dtype::i8>(ahead, t.ahead_lines, s);
        step();
      }
    }
    for (; steps > 0; --steps) step();
    Totals<kRows, kVectors> total;
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v)
        total[r][v] =
            _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(0xffff, sum[r][v]), _mm512_set1_ps(x_scales[r]));
    end_chunk<kRows, kVectors>(t, *chunk, total);
    x_scales += t.scale_stride;
  }
}

template <int kRows = kMostRows, int kPanels = most_panels(kMostRows, kRows)>
constexpr void add_tiles(LinearTiles& tiles) {
  tiles.tile[kRows][kPanels] = tile<kRows, kPanels>;
  if constexpr (kPanels > 1)
    add_tiles<kRows, kPanels - 1>(tiles);
  else if constexpr (kRows > 1)
    add_tiles<kRows - 1>(tiles);
}

constexpr LinearTiles all_tiles() {
  LinearTiles tiles{.pack = pack_quanta, .unit = 4, .max_rows = kMostRows};
  add_tiles<>(tiles);
  return tiles;
}

constexpr LinearTiles kTiles = all_tiles();

}  // namespace
}  // namespace dex

#pragma GCC pop_options

namespace dex {

const LinearTiles* int8_dot_tiles() {
  static const bool can =
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  return can ? &kTiles : nullptr;
}

}  // namespace dex
