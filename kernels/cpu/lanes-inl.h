// Vector pieces every CPU kernel shares. Compiled once per instruction set; everything here depends
// on an element's value (exp) or on a fixed tree (sums), never on where in memory a vector ends.
#if defined(DEX_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEX_KERNELS_LANES_INL_H_
#undef DEX_KERNELS_LANES_INL_H_
#else
#define DEX_KERNELS_LANES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/rank_key.h"

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Four = hn::Full128<float>;

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hwy::bfloat16_t* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), from));
}

// The first `count` elements, zeros after them; reads nothing beyond.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_some(D d, const T* from, std::size_t count) {
  if (HWY_LIKELY(count >= hn::Lanes(d))) return load(d, from);
  alignas(64) T padded[hn::MaxLanes(D())] = {};
  std::memcpy(padded, from, count * sizeof(T));
  return load(d, padded);
}

template <class D>
HWY_INLINE void store_some(D d, hn::Vec<D> v, float* to, std::size_t count) {
  if (HWY_LIKELY(count >= hn::Lanes(d))) return hn::StoreU(v, d, to);
  alignas(64) float padded[hn::MaxLanes(D())];
  hn::Store(v, d, padded);
  std::memcpy(to, padded, count * sizeof(float));
}

// Halves are added until four lanes are left.
template <class D>
HWY_INLINE hn::Vec<Four> fold([[maybe_unused]] D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return fold(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Lane i is the sum of the i-th vector, each by the same tree.
template <class D>
HWY_INLINE hn::Vec<Four> sums_of_four(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e) {
  const Four four;
  const hn::Repartition<std::uint64_t, Four> pairs;
  const auto a4 = fold(d, a), b4 = fold(d, b), c4 = fold(d, c), e4 = fold(d, e);
  const auto ab = hn::BitCast(
      pairs, hn::Add(hn::InterleaveLower(four, a4, b4), hn::InterleaveUpper(four, a4, b4)));
  const auto ce = hn::BitCast(
      pairs, hn::Add(hn::InterleaveLower(four, c4, e4), hn::InterleaveUpper(four, c4, e4)));
  return hn::Add(hn::BitCast(four, hn::InterleaveLower(pairs, ab, ce)),
                 hn::BitCast(four, hn::InterleaveUpper(pairs, ab, ce)));
}

template <class D>
HWY_INLINE float sum_of(D d, hn::Vec<D> v) {
  return hn::GetLane(sums_of_four(d, v, v, v, v));
}

// Lane i of a row of logits and the lanes after it; those past the row's end count as -inf.
template <class T>
HWY_INLINE hn::Vec<Floats> logits_at(const T* row, std::size_t i, std::size_t count) {
  const Floats d;
  if (HWY_LIKELY(i + hn::MaxLanes(d) <= count)) return load(d, row + i);
  return hn::IfThenElse(hn::FirstN(d, count - i), load_some(d, row + i, count - i),
                        hn::Set(d, kLowest));
}

// Per lane, `largest` or a greater `v`: NaN is never greater (kernels/rank_key.h).
template <class V>
HWY_INLINE V larger(V largest, V v) {
  return hn::IfThenElse(hn::Gt(v, largest), v, largest);
}

// NaN lanes may or may not win.
template <class D>
HWY_INLINE float max_of(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

// e^x. Highway's turns NaN into 0 and wraps above 2^127; here NaN stays NaN and the top is
// infinity.
template <class D>
HWY_INLINE hn::Vec<D> exp_of(D d, hn::Vec<D> x) {
  const auto e = hn::Exp(d, hn::Min(x, hn::Set(d, 100.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, e);
}

// e^x for x <= 0, to the last bit or its neighbour, in half the instructions of exp_of; 0 below
// -87, and NaN for the NaN that arithmetic gives (low bits that are set, as in a NaN made by hand,
// may be lost in the exponent). x is n ln 2 plus a small rest: adding 1.5 * 2^23 rounds to n, and
// leaves n in the bits that an exponent wants.
template <class D>
HWY_INLINE hn::Vec<D> power_of(D d, hn::Vec<D> x) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr auto kHigh = float(kLog2E), kLow = float(kLog2E - kHigh);
  const hn::RebindToUnsigned<D> du;
  const auto round = hn::Set(d, 12582912.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, kHigh), round), n = hn::Sub(shifted, round);
  const auto rest = hn::MulAdd(x, hn::Set(d, kLow), hn::MulSub(x, hn::Set(d, kHigh), n));
  // 2^rest: least squares of the relative error over [-1/2, 1/2]
  auto p = hn::Set(d, 0.00015337510558310896f);
  for (const float c : {0.00133999262470752f, 0.009618520736694336f, 0.05550329014658928f,
                        0.24022646248340607f, 0.6931471824645996f, 1.0f})
    p = hn::MulAdd(p, rest, hn::Set(d, c));
  const auto scaled = hn::Add(hn::BitCast(du, p), hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::BitCast(d, scaled));
}

// Round to nearest even, as the 16 upper bits of each lane; NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> bf16_bits(D, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  return hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded));
}

}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
