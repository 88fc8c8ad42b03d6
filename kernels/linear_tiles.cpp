#include "kernels/linear_tiles.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_tiles.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace {

using Vec = hn::Vec<Floats>;
constexpr int kLanes = hn::MaxLanes(Floats());

// How one step along `in` multiplies: kStep elements of weight into one accumulator per row and output.
struct F32 {
  using Weight = float;
  static constexpr int kStep = kLanes;
  struct Loaded { Vec w; };
  static HWY_INLINE Loaded load_weight(const float* w) { return {hn::LoadU(Floats(), w)}; }
  static HWY_INLINE Loaded load_x(const float* x) { return {hn::LoadU(Floats(), x)}; }
  static HWY_INLINE Vec multiply_add(Loaded x, Loaded w, Vec sum) { return hn::MulAdd(x.w, w.w, sum); }
};

// A 32-bit lane holds two bf16: the even one is its lower half shifted up, the odd one its upper half. x is packed alike,
// the evens of a step, then its odds, so no lane ever moves.
struct Bf16 {
  using Weight = std::uint16_t;
  static constexpr int kStep = 2 * kLanes;
  struct Loaded { Vec even, odd; };
  static HWY_INLINE Loaded load_weight(const std::uint16_t* w) {
    const hn::RebindToUnsigned<Floats> du;
    const auto both = hn::BitCast(du, hn::LoadU(hn::Repartition<std::uint16_t, Floats>(), w));
    return {hn::BitCast(Floats(), hn::ShiftLeft<16>(both)),
            hn::BitCast(Floats(), hn::And(both, hn::Set(du, 0xffff0000u)))};
  }
  static HWY_INLINE Loaded load_x(const float* x) {
    return {hn::LoadU(Floats(), x), hn::LoadU(Floats(), x + kLanes)};
  }
  static HWY_INLINE Vec multiply_add(Loaded x, Loaded w, Vec sum) {
    return hn::MulAdd(x.odd, w.odd, hn::MulAdd(x.even, w.even, sum));
  }
};

template <class Kind, int kRows>
struct Sums {
  Vec sum[kRows][kOuts];

  HWY_INLINE void step(const float* const* x, const typename Kind::Weight* const* w, std::ptrdiff_t k) {
    typename Kind::Loaded row[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) row[r] = Kind::load_x(x[r] + k);
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) {
      const auto weight = Kind::load_weight(w[o] + k);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r][o] = Kind::multiply_add(row[r], weight, sum[r][o]);
    }
  }
};

HWY_INLINE void finish(const LinearTile& t, float* y, hn::Vec<Four> sums) {
  const Four four;
  if (!t.first) sums = hn::Add(load_some(four, y, t.outs), sums);
  if (t.bias) sums = hn::Add(sums, load_some(four, t.bias, t.outs));
  store_some(four, sums, y, t.outs);
}

template <class Kind, int kRows>
void tile(const LinearTile& t) {
  using Weight = typename Kind::Weight;
  const float* x[kRows];
  const Weight* w[kOuts];
  for (int r = 0; r < kRows; ++r) x[r] = static_cast<const float*>(t.x) + r * t.x_stride;
  for (int o = 0; o < kOuts; ++o)
    w[o] = static_cast<const Weight*>(t.weight) + std::min(o, t.outs - 1) * t.weight_stride;

  Sums<Kind, kRows> sums;
  for (auto& row : sums.sum)
    for (auto& sum : row) sum = hn::Zero(Floats());
  int k = 0;
  for (const char* ahead = t.ahead; k + Kind::kStep <= t.count; k += Kind::kStep) {
    ahead = fetch_ahead(ahead, t.ahead_lines);
    sums.step(x, w, k);
  }
  if (k < t.count) {
    alignas(64) Weight padded[kOuts][Kind::kStep] = {};
    for (int o = 0; o < kOuts; ++o) {
      std::copy(w[o] + k, w[o] + t.count, padded[o]);
      w[o] = padded[o];
    }
    for (int r = 0; r < kRows; ++r) x[r] += k;
    sums.step(x, w, 0);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const auto& s = sums.sum[r];
    finish(t, t.y + r * t.y_stride, sums_of_four(Floats(), s[0], s[1], s[2], s[3]));
  }
}

void pack_f32(const float* x, void* to, int in) {
  float* packed = static_cast<float*>(to);
  std::copy(x, x + in, packed);
  std::fill(packed + in, packed + (in + kPad - 1) / kPad * kPad, 0.0f);
}

void pack_bf16(const float* x, void* to, int in) {
  float* packed = static_cast<float*>(to);
  const int padded = (in + kPad - 1) / kPad * kPad;
  for (int k = 0; k < padded; k += kLanes) {
    alignas(64) float lanes[kLanes];
    const int count = std::clamp(in - k, 0, kLanes);
    const auto bits = bf16_bits(Floats(), load_some(Floats(), x + std::min(k, in), count));
    hn::Store(hn::BitCast(Floats(), hn::ShiftLeft<16>(bits)), Floats(), lanes);
    float* block = packed + k / Bf16::kStep * Bf16::kStep;
    for (int i = 0; i < kLanes; ++i) {
      const int at = k + i - k / Bf16::kStep * Bf16::kStep;
      block[at / 2 + at % 2 * kLanes] = lanes[i];
    }
  }
}

// Accumulators, a row block and one weight must fit the registers: 32 of them with AVX-512 and NEON, else 16.
template <class Kind>
LinearTiles tiles_of(void (*pack)(const float*, void*, int)) {
  LinearTiles tiles{.pack = pack, .max_rows = 3, .tile = {nullptr, tile<Kind, 1>, tile<Kind, 2>, tile<Kind, 3>}};
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
  tiles.max_rows = 6;
  tiles.tile[4] = tile<Kind, 4>;
  tiles.tile[5] = tile<Kind, 5>;
  tiles.tile[6] = tile<Kind, 6>;
#endif
  return tiles;
}

const LinearTiles& best_tiles(Dtype dtype) {
  static const LinearTiles f32 = tiles_of<F32>(pack_f32), bf16 = tiles_of<Bf16>(pack_bf16);
  return dtype == Dtype::f32 ? f32 : bf16;
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(best_tiles);

const LinearTiles& vector_tiles(Dtype dtype) { return HWY_DYNAMIC_DISPATCH(best_tiles)(dtype); }

}  // namespace dex
#endif
