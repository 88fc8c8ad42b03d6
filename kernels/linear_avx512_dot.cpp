// VDPBF16PS multiplies 32 pairs of bf16 and adds them into 16 floats, VPDPWSSD 32 pairs of 16-bit integers into 16 integers:
// half the instructions of the vector paths. Highway 1.0.3 offers neither, hence intrinsics.
#include <immintrin.h>

#include "kernels/linear_tiles.h"
#include "kernels/row_ops.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vnni,fma,avx2")

namespace dex {
namespace {

constexpr int kStep = 32;

__mmask32 first_lanes(int count) { return count >= kStep ? ~0u : (1u << count) - 1; }

struct Bf16 {
  using Weight = unsigned short;
  using Sum = __m512;
  static Sum zero() { return _mm512_setzero_ps(); }
  static __m512i load(const Weight* w) { return _mm512_loadu_si512(w); }
  static __m512i load_some(const Weight* w, int count) { return _mm512_maskz_loadu_epi16(first_lanes(count), w); }
  static Sum multiply_add(__m512i x, __m512i w, Sum sum) { return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w); }

  // With masks of all: the plain extracts of GCC 12 warn about their own uninitialized argument.
  static __m128 fold(Sum v) {
    const __m256 half =
        _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, v, 0), _mm512_maskz_extractf32x8_ps(0xff, v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  }
  static __m128 totals(const Sum (&s)[kOuts], float) {
    const __m128 a = fold(s[0]), b = fold(s[1]), c = fold(s[2]), d = fold(s[3]);
    const __m128d ab = _mm_castps_pd(_mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b)));
    const __m128d cd = _mm_castps_pd(_mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d)));
    return _mm_add_ps(_mm_castpd_ps(_mm_unpacklo_pd(ab, cd)), _mm_castpd_ps(_mm_unpackhi_pd(ab, cd)));
  }
};

struct I8 {
  using Weight = signed char;
  using Sum = __m512i;
  static Sum zero() { return _mm512_setzero_si512(); }
  static __m512i load(const Weight* w) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w))); }
  static __m512i load_some(const Weight* w, int count) {
    return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(first_lanes(count), w));
  }
  static Sum multiply_add(__m512i x, __m512i w, Sum sum) { return _mm512_dpwssd_epi32(sum, x, w); }

  static __m128i fold(Sum v) {
    const __m256i half =
        _mm256_add_epi32(_mm512_maskz_extracti32x8_epi32(0xff, v, 0), _mm512_maskz_extracti32x8_epi32(0xff, v, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  }
  static __m128 totals(const Sum (&s)[kOuts], float scale) {
    const __m128i ab = _mm_hadd_epi32(fold(s[0]), fold(s[1])), cd = _mm_hadd_epi32(fold(s[2]), fold(s[3]));
    return _mm_mul_ps(_mm_cvtepi32_ps(_mm_hadd_epi32(ab, cd)), _mm_set1_ps(scale));
  }
};

template <class Kind, int kRows>
inline __attribute__((always_inline)) void step(typename Kind::Sum (&sum)[kRows][kOuts], const unsigned short* const* x,
                                                 const __m512i (&w)[kOuts], int k) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m512i row = _mm512_loadu_si512(x[r] + k);
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) sum[r][o] = Kind::multiply_add(row, w[o], sum[r][o]);
  }
}

void finish(const LinearTile& t, float* y, __m128 sums) {
  const auto valid = static_cast<__mmask8>((1 << t.outs) - 1);
  if (!t.first) sums = _mm_add_ps(_mm_maskz_loadu_ps(valid, y), sums);
  if (t.scales) sums = _mm_mul_ps(sums, _mm_maskz_loadu_ps(valid, t.scales));
  if (t.bias) sums = _mm_add_ps(sums, _mm_maskz_loadu_ps(valid, t.bias));
  _mm_mask_storeu_ps(y, valid, sums);
}

template <class Kind, int kRows>
void tile(const LinearTile& t) {
  const unsigned short* x[kRows];
  const typename Kind::Weight* w[kOuts];
  for (int r = 0; r < kRows; ++r) x[r] = static_cast<const unsigned short*>(t.x) + r * t.x_stride;
  for (int o = 0; o < kOuts; ++o)
    w[o] = static_cast<const typename Kind::Weight*>(t.weight) + (o < t.outs ? o : t.outs - 1) * t.weight_stride;

  typename Kind::Sum sum[kRows][kOuts];
  for (auto& row : sum)
    for (auto& s : row) s = Kind::zero();
  __m512i weight[kOuts];
  int k = 0;
  for (const char* ahead = t.ahead; k + kStep <= t.count; k += kStep) {
    ahead = fetch_ahead(ahead, t.ahead_lines);
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) weight[o] = Kind::load(w[o] + k);
    step<Kind, kRows>(sum, x, weight, k);
  }
  if (k < t.count) {
    for (int o = 0; o < kOuts; ++o) weight[o] = Kind::load_some(w[o] + k, t.count - k);
    step<Kind, kRows>(sum, x, weight, k);
  }
  for (int r = 0; r < kRows; ++r) finish(t, t.y + r * t.y_stride, Kind::totals(sum[r], t.x_scales[r]));
}

float pack_bf16(const float* x, void* to, int in) {
  auto* packed = static_cast<unsigned short*>(to);
  convert(x, packed, in, Dtype::bf16);
  for (int k = in; k % kPad != 0; ++k) packed[k] = 0;
  return 1;
}

template <class Kind>
constexpr LinearTiles tiles_of(float (*pack)(const float*, void*, int)) {
  return {.pack = pack,
          .packed_size = 2,
          .step = kStep,
          .max_rows = 6,
          .tile = {nullptr, tile<Kind, 1>, tile<Kind, 2>, tile<Kind, 3>, tile<Kind, 4>, tile<Kind, 5>, tile<Kind, 6>}};
}

constexpr LinearTiles kBf16 = tiles_of<Bf16>(pack_bf16), kI8 = tiles_of<I8>(pack_quanta);

}  // namespace
}  // namespace dex

#pragma GCC pop_options

namespace dex {

const LinearTiles* dot_tiles(Dtype dtype) {
  static const bool vectors = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                              __builtin_cpu_supports("avx512vl");
  static const bool bf16 = vectors && __builtin_cpu_supports("avx512bf16");
  static const bool vnni = vectors && __builtin_cpu_supports("avx512vnni");
  if (dtype == Dtype::bf16 && bf16) return &kBf16;
  if (dtype == Dtype::i8 && vnni) return &kI8;
  return nullptr;
}

}  // namespace dex
