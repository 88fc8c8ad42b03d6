// VDPBF16PS multiplies 32 pairs of bf16 and adds them into 16 floats, VPDPWSSD 32 pairs of 16-bit
// integers into 16 integers: half the instructions of the vector paths. Highway 1.0.3 offers
// neither, hence intrinsics.
#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/row_ops.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vnni,fma,avx2")

namespace dex {
namespace {

constexpr int kLanes = 16;  // outputs of a vector, a pair of products each
constexpr int kRowSteps = kInputChunk / 2;

struct Bf16 {
  static constexpr Dtype kDtype = Dtype::bf16;
  using Weight = std::uint16_t;
  using Sum = __m512;
  static Sum zero() { return _mm512_setzero_ps(); }
  static __m512i load(const Weight* w) { return _mm512_loadu_si512(w); }
  static Sum multiply_add(__m512i x, __m512i w, Sum sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w);
  }
  static __m512 total(Sum sum, float) { return sum; }
};

struct I8 {
  static constexpr Dtype kDtype = Dtype::i8;
  using Weight = std::int8_t;
  using Sum = __m512i;
  static Sum zero() { return _mm512_setzero_si512(); }
  static __m512i load(const Weight* w) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
  }
  static Sum multiply_add(__m512i x, __m512i w, Sum sum) { return _mm512_dpwssd_epi32(sum, x, w); }
  static __m512 total(Sum sum, float scale) {
    return _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(0xffff, sum), _mm512_set1_ps(scale));
  }
};

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

template <class Kind, int kRows, int kPanels>
void tile(const LinearTile& t) {
  static_assert(kPanel == 2 * kLanes);
  constexpr int kVectors = 2 * kPanels;
  const auto* x = static_cast<const std::int32_t*>(t.x);
  const auto* w = static_cast<const typename Kind::Weight*>(t.weight);
  const float* x_scales = t.x_scales;
  const char* ahead = t.ahead;
  for (const SumChunk* chunk = t.chunks; chunk != t.chunks + t.chunk_count; ++chunk) {
    typename Kind::Sum sum[kRows][kVectors];
    for (auto& row : sum)
      for (auto& s : row) s = Kind::zero();
    const auto step = [&] {
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) {
        const auto* panel = w + p * t.panel_stride;
        const __m512i low = Kind::load(panel), high = Kind::load(panel + kPanel);
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
          const __m512i row = _mm512_set1_epi32(x[r * kRowSteps]);
          sum[r][2 * p] = Kind::multiply_add(row, low, sum[r][2 * p]);
          sum[r][2 * p + 1] = Kind::multiply_add(row, high, sum[r][2 * p + 1]);
        }
      }
      ++x;
      w += 2 * kPanel;
    };
    int steps = (chunk->count + 1) / 2;
    for (; steps >= kGroup;
         steps -= kGroup, ahead += t.ahead_lines * ahead_plan(kRows, Kind::kDtype).every) {
#pragma GCC unroll 4
      for (int s = 0; s < kGroup; ++s) {
        if constexpr (kPanels == 1) fetch_ahead<kRows, Kind::kDtype>(ahead, t.ahead_lines, s);
        step();
      }
    }
    for (; steps > 0; --steps) step();
    Totals<kRows, kVectors> total;
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) total[r][v] = Kind::total(sum[r][v], x_scales[r]);
    end_chunk<kRows, kVectors>(t, *chunk, total);
    x_scales += t.scale_stride;
  }
}

float pack_bf16(const float* x, void* to, int count) {
  auto* narrow = static_cast<std::uint16_t*>(to);
  convert(x, narrow, count, Dtype::bf16);
  if (count % 2) narrow[count] = 0;
  return 1;
}

template <class Kind, int kRows = kMostRows, int kPanels = most_panels(kMostRows, kRows)>
constexpr void add_tiles(LinearTiles& tiles) {
  tiles.tile[kRows][kPanels] = tile<Kind, kRows, kPanels>;
  if constexpr (kPanels > 1)
    add_tiles<Kind, kRows, kPanels - 1>(tiles);
  else if constexpr (kRows > 1)
    add_tiles<Kind, kRows - 1>(tiles);
}

template <class Kind>
constexpr LinearTiles tiles_of(float (*pack)(const float*, void*, int)) {
  LinearTiles tiles{.pack = pack, .unit = 4, .max_rows = kMostRows};
  add_tiles<Kind>(tiles);
  return tiles;
}

constexpr LinearTiles kBf16 = tiles_of<Bf16>(pack_bf16), kI8 = tiles_of<I8>(pack_quanta);

}  // namespace
}  // namespace dex

#pragma GCC pop_options

namespace dex {

const LinearTiles* dot_tiles(Dtype dtype) {
  static const bool vectors =
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  static const bool bf16 = vectors && __builtin_cpu_supports("avx512bf16");
  if (dtype == Dtype::bf16 && bf16) return &kBf16;
  if (dtype == Dtype::i8 && vectors) return &kI8;
  return nullptr;
}

}  // namespace dex
