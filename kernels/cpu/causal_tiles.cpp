#include "kernels/cpu/causal_tiles.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/causal_tiles.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace {

using Vec = hn::Vec<Floats>;
constexpr int kLanes = hn::MaxLanes(Floats());
// of a panel: with kCausalRows rows, what the registers hold
constexpr int kVectors = kLanes == 16 ? 4 : 2;
static_assert(kCausalWidth % (kVectors * kLanes) == 0);

template <int kRows>
void tile(const CausalTile& t) {
  const Floats d;
  const auto* left = static_cast<const float*>(t.left);
  const auto* panel = static_cast<const float*>(t.panel);
  Vec sum[kRows][kVectors];
  for (auto& row : sum)
    for (auto& s : row) s = hn::Zero(d);
  for (std::ptrdiff_t i = 0; i < t.units; ++i, panel += kVectors * kLanes) {
    Vec column[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) column[v] = hn::Load(d, panel + v * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const Vec x = hn::Set(d, left[r * t.left_stride + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x, column[v], sum[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      hn::Store(sum[r][v], d, t.out + r * t.out_stride + v * kLanes);
}

template <int kRows>
void add_tiles(CausalTiles& tiles) {
  tiles.tile[kRows] = tile<kRows>;
  if constexpr (kRows > 1) add_tiles<kRows - 1>(tiles);
}

const CausalTiles& tiles() {
  static const CausalTiles tiles = [] {
    CausalTiles made{.width = kVectors * kLanes};
    add_tiles<kCausalRows>(made);
    return made;
  }();
  return tiles;
}

// Narrow weights overtake no score that is still to be read: they are half as long.
float soften(float* scores, int count, int padded, float scale, bool narrow) {
  const Floats d;
  const hn::Rebind<std::uint16_t, Floats> half;
  auto* bits = reinterpret_cast<std::uint16_t*>(scores);
  for (int i = count; i < padded; ++i) scores[i] = -std::numeric_limits<float>::infinity();
  Vec top = hn::Load(d, scores);
  for (int i = kLanes; i < padded; i += kLanes) top = hn::Max(top, hn::Load(d, scores + i));
  const Vec max = hn::Set(d, max_of(d, top)), factor = hn::Set(d, scale);
  Vec sum = hn::Zero(d);
  for (int i = 0; i < padded; i += kLanes) {
    const Vec e = power_of(d, hn::Mul(hn::Sub(hn::Load(d, scores + i), max), factor));
    sum = hn::Add(sum, e);
    if (narrow)
      hn::StoreU(hn::TruncateTo(half, bf16_bits(d, e)), half, bits + i);
    else
      hn::Store(e, d, scores + i);
  }
  return sum_of(d, sum);
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(tiles);
HWY_EXPORT(soften);

const CausalTiles& vector_causal_tiles() { return HWY_DYNAMIC_DISPATCH(tiles)(); }

float soften_causal(float* scores, int count, int padded, float scale, bool narrow) {
  return HWY_DYNAMIC_DISPATCH(soften)(scores, count, padded, scale, narrow);
}

}  // namespace dex
#endif
