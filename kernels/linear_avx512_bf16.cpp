// VDPBF16PS multiplies 32 pairs of bf16 and adds them into 16 floats: twice the products of the float path, whose weights
// are widened first. Highway 1.0.3 does not offer it, hence intrinsics.
#include <immintrin.h>

#include "kernels/linear_tiles.h"
#include "kernels/row_ops.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,avx2")

namespace dex {
namespace {

constexpr int kStep = 32;

__m512i load_some(const unsigned short* from, int count) {
  return _mm512_maskz_loadu_epi16(count >= kStep ? ~0u : (1u << count) - 1, from);
}

template <int kRows>
inline __attribute__((always_inline)) void step(__m512 (&sum)[kRows][kOuts], const unsigned short* const* x,
                                                 const __m512i (&w)[kOuts], int k) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const auto row = (__m512bh)_mm512_loadu_si512(x[r] + k);
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) sum[r][o] = _mm512_dpbf16_ps(sum[r][o], row, (__m512bh)w[o]);
  }
}

__m128 fold(__m512 v) {
  // With a mask of all: the plain extracts of GCC 12 warn about their own uninitialized argument.
  const __m256 half =
      _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, v, 0), _mm512_maskz_extractf32x8_ps(0xff, v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

__m128 sums_of_four(const __m512 (&s)[4]) {
  const __m128 a = fold(s[0]), b = fold(s[1]), c = fold(s[2]), d = fold(s[3]);
  const __m128d ab = _mm_castps_pd(_mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b)));
  const __m128d cd = _mm_castps_pd(_mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d)));
  return _mm_add_ps(_mm_castpd_ps(_mm_unpacklo_pd(ab, cd)), _mm_castpd_ps(_mm_unpackhi_pd(ab, cd)));
}

void finish(const LinearTile& t, float* y, __m128 sums) {
  const auto valid = static_cast<__mmask8>((1 << t.outs) - 1);
  if (!t.first) sums = _mm_add_ps(_mm_maskz_loadu_ps(valid, y), sums);
  if (t.bias) sums = _mm_add_ps(sums, _mm_maskz_loadu_ps(valid, t.bias));
  _mm_mask_storeu_ps(y, valid, sums);
}

template <int kRows>
void tile(const LinearTile& t) {
  const unsigned short* x[kRows];
  const unsigned short* w[kOuts];
  for (int r = 0; r < kRows; ++r) x[r] = static_cast<const unsigned short*>(t.x) + r * t.x_stride;
  for (int o = 0; o < kOuts; ++o)
    w[o] = static_cast<const unsigned short*>(t.weight) + (o < t.outs ? o : t.outs - 1) * t.weight_stride;

  __m512 sum[kRows][kOuts];
  for (auto& row : sum)
    for (auto& s : row) s = _mm512_setzero_ps();
  __m512i weight[kOuts];
  int k = 0;
  for (const char* ahead = t.ahead; k + kStep <= t.count; k += kStep) {
    ahead = fetch_ahead(ahead, t.ahead_lines);
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) weight[o] = _mm512_loadu_si512(w[o] + k);
    step<kRows>(sum, x, weight, k);
  }
  if (k < t.count) {
    for (int o = 0; o < kOuts; ++o) weight[o] = load_some(w[o] + k, t.count - k);
    step<kRows>(sum, x, weight, k);
  }
  for (int r = 0; r < kRows; ++r) finish(t, t.y + r * t.y_stride, sums_of_four(sum[r]));
}

void pack(const float* x, void* to, int in) {
  auto* packed = static_cast<unsigned short*>(to);
  convert(x, packed, in, Dtype::bf16);
  for (int k = in; k % kPad != 0; ++k) packed[k] = 0;
}

constexpr LinearTiles kTiles{.pack = pack,
                             .packed_size = 2,
                             .max_rows = 6,
                             .tile = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>}};

}  // namespace
}  // namespace dex

#pragma GCC pop_options

namespace dex {

const LinearTiles* bf16_dot_tiles() {
  static const bool available = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return available ? &kTiles : nullptr;
}

}  // namespace dex
