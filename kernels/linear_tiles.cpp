#include "kernels/linear_tiles.h"

#include <algorithm>
#include <limits>

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
  using X = float;
  using Sum = Vec;
  static constexpr int kStep = kLanes;
  struct Loaded { Vec w; };
  static HWY_INLINE Sum zero() { return hn::Zero(Floats()); }
  static HWY_INLINE Loaded load_weight(const float* w) { return {hn::LoadU(Floats(), w)}; }
  static HWY_INLINE Loaded load_x(const float* x) { return {hn::LoadU(Floats(), x)}; }
  static HWY_INLINE Vec multiply_add(Loaded x, Loaded w, Vec sum) { return hn::MulAdd(x.w, w.w, sum); }
  static HWY_INLINE hn::Vec<Four> totals(const Sum (&s)[kOuts], float) {
    return sums_of_four(Floats(), s[0], s[1], s[2], s[3]);
  }
};

// A 32-bit lane holds two bf16: the even one is its lower half shifted up, the odd one its upper half. x is packed alike,
// the evens of a step, then its odds, so no lane ever moves.
struct Bf16 {
  using Weight = std::uint16_t;
  using X = float;
  using Sum = Vec;
  static constexpr int kStep = 2 * kLanes;
  struct Loaded { Vec even, odd; };
  static HWY_INLINE Sum zero() { return hn::Zero(Floats()); }
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
  static HWY_INLINE hn::Vec<Four> totals(const Sum (&s)[kOuts], float) {
    return sums_of_four(Floats(), s[0], s[1], s[2], s[3]);
  }
};

// Products of 16-bit integers, summed exactly in 32 bits: any order gives the same bits.
struct I8 {
  using Weight = std::int8_t;
  using X = std::int16_t;
  using Wide = hn::RebindToSigned<Floats>;
  using Narrow = hn::Repartition<std::int16_t, Floats>;
  struct Sum { hn::Vec<Wide> even, odd; };  // which products go where is Highway's choice
  static constexpr int kStep = 2 * kLanes;
  struct Loaded { hn::Vec<Narrow> v; };
  static HWY_INLINE Sum zero() { return {hn::Zero(Wide()), hn::Zero(Wide())}; }
  static HWY_INLINE Loaded load_weight(const std::int8_t* w) {
    return {hn::PromoteTo(Narrow(), hn::LoadU(hn::Rebind<std::int8_t, Narrow>(), w))};
  }
  static HWY_INLINE Loaded load_x(const std::int16_t* x) { return {hn::LoadU(Narrow(), x)}; }
  static HWY_INLINE Sum multiply_add(Loaded x, Loaded w, Sum sum) {
    sum.even = hn::ReorderWidenMulAccumulate(Wide(), x.v, w.v, sum.even, sum.odd);
    return sum;
  }
  static HWY_INLINE hn::Vec<Four> totals(const Sum (&s)[kOuts], float scale) {
    const auto both = [](const Sum& sum) HWY_ATTR { return hn::Add(sum.even, sum.odd); };
    const auto total = sums_of_four(Wide(), both(s[0]), both(s[1]), both(s[2]), both(s[3]));
    return hn::Mul(hn::ConvertTo(Four(), total), hn::Set(Four(), scale));
  }
};

template <class Kind, int kRows>
struct Sums {
  typename Kind::Sum sum[kRows][kOuts];

  HWY_INLINE void step(const typename Kind::X* const* x, const typename Kind::Weight* const* w, std::ptrdiff_t k) {
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
  if (t.scales) sums = hn::Mul(sums, load_some(four, t.scales, t.outs));
  if (t.bias) sums = hn::Add(sums, load_some(four, t.bias, t.outs));
  store_some(four, sums, y, t.outs);
}

template <class Kind, int kRows>
void tile(const LinearTile& t) {
  using Weight = typename Kind::Weight;
  using X = typename Kind::X;
  const X* x[kRows];
  const Weight* w[kOuts];
  for (int r = 0; r < kRows; ++r) x[r] = static_cast<const X*>(t.x) + r * t.x_stride;
  for (int o = 0; o < kOuts; ++o)
    w[o] = static_cast<const Weight*>(t.weight) + std::min(o, t.outs - 1) * t.weight_stride;

  Sums<Kind, kRows> sums;
  for (auto& row : sums.sum)
    for (auto& sum : row) sum = Kind::zero();
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
    finish(t, t.y + r * t.y_stride, Kind::totals(sums.sum[r], t.x_scales ? t.x_scales[r] : 1.0f));
  }
}

float pack_f32(const float* x, void* to, int in) {
  float* packed = static_cast<float*>(to);
  std::copy(x, x + in, packed);
  std::fill(packed + in, packed + (in + kPad - 1) / kPad * kPad, 0.0f);
  return 1;
}

float pack_bf16(const float* x, void* to, int in) {
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
  return 1;
}

// Ties of rounding go to even. Chunks smaller than any model's rows count as zero: their scale would not be a normal number.
float quantize(const float* x, void* to, int in) {
  constexpr float kSmallest = 1e-30f;
  const Floats d;
  auto* packed = static_cast<std::int16_t*>(to);
  Vec size = hn::Zero(d);
  Vec odd = hn::Zero(d);  // NaN once a value is NaN or infinite
  for (int k = 0; k < in; k += kLanes) {
    const Vec v = load_some(d, x + k, std::min(kLanes, in - k));
    size = hn::Max(size, hn::Abs(v));
    odd = hn::MulAdd(v, hn::Zero(d), odd);
  }
  const bool finite = hn::AllTrue(d, hn::Eq(odd, hn::Zero(d)));
  const float largest = finite ? max_of(d, size) : 0;
  const float per_unit = largest < kSmallest ? 0 : kMaxQuantum / largest;
  const hn::Rebind<std::int16_t, Floats> narrow;
  const int padded = (in + kPad - 1) / kPad * kPad;
  for (int k = 0; k < padded; k += kLanes) {
    const Vec v = finite && k < in ? load_some(d, x + k, std::min(kLanes, in - k)) : hn::Zero(d);
    hn::StoreU(hn::DemoteTo(narrow, hn::NearestInt(hn::Mul(v, hn::Set(d, per_unit)))), narrow, packed + k);
  }
  return finite ? largest / kMaxQuantum : std::numeric_limits<float>::quiet_NaN();
}

// Accumulators, a row block and one weight must fit the registers: 32 of them with AVX-512 and NEON, else 16.
template <class Kind>
LinearTiles tiles_of(float (*pack)(const float*, void*, int)) {
  LinearTiles tiles{.pack = pack, .packed_size = sizeof(typename Kind::X), .step = Kind::kStep, .max_rows = 3, .tile = {nullptr, tile<Kind, 1>, tile<Kind, 2>, tile<Kind, 3>}};
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
  tiles.max_rows = 6;
  tiles.tile[4] = tile<Kind, 4>;
  tiles.tile[5] = tile<Kind, 5>;
  tiles.tile[6] = tile<Kind, 6>;
#endif
  return tiles;
}

const LinearTiles& best_tiles(Dtype dtype) {
  static const LinearTiles f32 = tiles_of<F32>(pack_f32), bf16 = tiles_of<Bf16>(pack_bf16), i8 = tiles_of<I8>(quantize);
  return dtype == Dtype::f32 ? f32 : dtype == Dtype::bf16 ? bf16 : i8;
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(best_tiles);
HWY_EXPORT(quantize);

float pack_quanta(const float* x, void* to, int count) { return HWY_DYNAMIC_DISPATCH(quantize)(x, to, count); }
const LinearTiles& vector_tiles(Dtype dtype) { return HWY_DYNAMIC_DISPATCH(best_tiles)(dtype); }

}  // namespace dex
#endif
