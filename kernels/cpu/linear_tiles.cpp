#include "kernels/cpu/linear_tiles.h"

#include <algorithm>
#include <limits>

#include "kernels/ceil_div.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_tiles.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace {

using Vec = hn::Vec<Floats>;
constexpr int kLanes = hn::MaxLanes(Floats());
constexpr int kVectors = kPanel / kLanes;  // of a panel's outputs
using Wide = hn::RebindToSigned<Floats>;
using Narrow = hn::Repartition<std::int16_t, Floats>;

// How one step along `in` multiplies: a vector of outputs with one row's value.
struct F32 {
  static constexpr Dtype kDtype = Dtype::f32;
  using Weight = float;
  using X = float;
  using Sum = Vec;
  using Loaded = Vec;
  static constexpr int kStep = 1;
  static HWY_INLINE Sum zero() { return hn::Zero(Floats()); }
  static HWY_INLINE Loaded load_weight(const float* w) { return hn::LoadU(Floats(), w); }
  static HWY_INLINE Loaded load_x(const float* x) { return hn::Set(Floats(), *x); }
  static HWY_INLINE Sum multiply_add(Loaded x, Loaded w, Sum sum) { return hn::MulAdd(x, w, sum); }
  static HWY_INLINE Vec total(Sum sum, float) { return sum; }
};

// A 32-bit lane holds two bf16: the even one is its lower half shifted up, the odd one its upper
// half.
struct Bf16 {
  static constexpr Dtype kDtype = Dtype::bf16;
  using Weight = std::uint16_t;
  struct X {
    float even, odd;
  };
  using Sum = Vec;
  struct Loaded {
    Vec even, odd;
  };
  static constexpr int kStep = 2;
  static HWY_INLINE Sum zero() { return hn::Zero(Floats()); }
  static HWY_INLINE Loaded load_weight(const std::uint16_t* w) {
    const hn::RebindToUnsigned<Floats> du;
    const auto both = hn::BitCast(du, hn::LoadU(hn::Repartition<std::uint16_t, Floats>(), w));
    return {hn::BitCast(Floats(), hn::ShiftLeft<16>(both)),
            hn::BitCast(Floats(), hn::And(both, hn::Set(du, 0xffff0000u)))};
  }
  static HWY_INLINE Loaded load_x(const X* x) {
    return {hn::Set(Floats(), x->even), hn::Set(Floats(), x->odd)};
  }
  static HWY_INLINE Sum multiply_add(Loaded x, Loaded w, Sum sum) {
    return hn::MulAdd(x.odd, w.odd, hn::MulAdd(x.even, w.even, sum));
  }
  static HWY_INLINE Vec total(Sum sum, float) { return sum; }
};

// Products of 16-bit integers, summed exactly in 32 bits: any order gives the same bits.
struct I8 {
  static constexpr Dtype kDtype = Dtype::i8;
  using Weight = std::int8_t;
  using X = std::int32_t;  // two 16-bit integers
  struct Sum {
    hn::Vec<Wide> first, second;
  };  // which products go where is Highway's choice
  using Loaded = hn::Vec<Narrow>;
  static constexpr int kStep = 2;
  static HWY_INLINE Sum zero() { return {hn::Zero(Wide()), hn::Zero(Wide())}; }
  static HWY_INLINE Loaded load_weight(const std::int8_t* w) {
    return hn::PromoteTo(Narrow(), hn::LoadU(hn::Rebind<std::int8_t, Narrow>(), w));
  }
  static HWY_INLINE Loaded load_x(const X* x) { return hn::BitCast(Narrow(), hn::Set(Wide(), *x)); }
  static HWY_INLINE Sum multiply_add(Loaded x, Loaded w, Sum sum) {
    sum.first = hn::ReorderWidenMulAccumulate(Wide(), x, w, sum.first, sum.second);
    return sum;
  }
  static HWY_INLINE Vec total(Sum sum, float scale) {
    const auto pairs = hn::RearrangeToOddPlusEven(sum.first, sum.second);
    return hn::Mul(hn::ConvertTo(Floats(), pairs), hn::Set(Floats(), scale));
  }
};

// A few rows' sums of kCount vectors of the kPanels panels, the first of them being kFirst.
template <int kRows, int kPanels, int kFirst, int kCount>
struct Totals {
  Vec sum[kRows][kCount];

  HWY_INLINE void add(const float* kept) {
    each([&](Vec& s, int row, int v) HWY_ATTR {
      s = hn::Add(hn::LoadU(Floats(), kept + (row * kPanels * kVectors + v) * kLanes), s);
    });
  }
  HWY_INLINE void keep(float* kept) {
    each([&](Vec& s, int row, int v)
             HWY_ATTR { hn::StoreU(s, Floats(), kept + (row * kPanels * kVectors + v) * kLanes); });
  }
  HWY_INLINE void finish(const LinearTile& t) {
    const Floats d;
    each([&](Vec& s, int row, int v) HWY_ATTR {
      const int out = v * kLanes, outs = std::min(kLanes, t.outs - out);
      if (outs <= 0) return;
      if (t.scales) s = hn::Mul(s, load_some(d, t.scales + out, outs));
      if (t.bias) s = hn::Add(s, load_some(d, t.bias + out, outs));
      store_some(d, s, t.y + row * t.y_stride + out, outs);
    });
  }
  // What becomes of a chunk's sum.
  HWY_INLINE void end(const LinearTile& t, const SumChunk& chunk) {
    float* place = t.kept + chunk.place * t.place_stride;
    if (!chunk.first) add(place);
    for (int m = 0; m < chunk.merges; ++m) add(place -= t.place_stride);
    chunk.ends_sum ? finish(t) : keep(place);
  }

 private:
  template <class Body>
  HWY_INLINE void each(const Body& body) {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kCount; ++v) body(sum[r][v], r, kFirst + v);
  }
};

// Vectors [kFirst, kFirst + kCount) of the panels' outputs.
template <class Kind, int kRows, int kPanels, int kFirst, int kCount>
HWY_INLINE void vectors(const LinearTile& t) {
  const auto* x = static_cast<const typename Kind::X*>(t.x);
  const auto* w =
      static_cast<const typename Kind::Weight*>(t.weight) + kFirst * kLanes * Kind::kStep;
  const float* x_scales = t.x_scales;
  const char* ahead = t.ahead;
  const int lines = kFirst == 0 ? t.ahead_lines : 0;
  for (const SumChunk* chunk = t.chunks; chunk != t.chunks + t.chunk_count; ++chunk) {
    typename Kind::Sum sum[kRows][kCount];
    for (auto& row : sum)
      for (auto& s : row) s = Kind::zero();
    const auto step = [&]() HWY_ATTR {
      typename Kind::Loaded row[kRows];
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) row[r] = Kind::load_x(x + r * (kInputChunk / Kind::kStep));
#pragma GCC unroll 16
      for (int v = 0; v < kCount; ++v) {
        const auto* at = w + v / kVectors * t.panel_stride + v % kVectors * kLanes * Kind::kStep;
        fetch_stream<kRows, kPanels>(at);
        const auto weight = Kind::load_weight(at);
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) sum[r][v] = Kind::multiply_add(row[r], weight, sum[r][v]);
      }
      ++x;
      w += kPanel * Kind::kStep;
    };
    int steps = ceil_div(chunk->count, Kind::kStep);
    for (; steps >= kGroup;
         steps -= kGroup, ahead += t.ahead_lines * ahead_plan(kRows, Kind::kDtype).every) {
#pragma GCC unroll 4
      for (int s = 0; s < kGroup; ++s) {
        if constexpr (kPanels == 1) fetch_ahead<kRows, Kind::kDtype>(ahead, lines, s);
        step();
      }
    }
    for (; steps > 0; --steps) step();
    Totals<kRows, kPanels, kFirst, kCount> totals;
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kCount; ++v) totals.sum[r][v] = Kind::total(sum[r][v], x_scales[r]);
    totals.end(t, *chunk);
    x_scales += t.scale_stride;
  }
}

// All vectors at once where the registers hold them, else four after four.
template <class Kind, int kRows, int kPanels, int kFirst = 0>
void tile(const LinearTile& t) {
  constexpr int kAll = kPanels * kVectors, kCount = kPanels == 1 ? std::min(kVectors, 4) : kAll;
  vectors<Kind, kRows, kPanels, kFirst, kCount>(t);
  if constexpr (kFirst + kCount < kAll) tile<Kind, kRows, kPanels, kFirst + kCount>(t);
}

float pack_f32(const float* x, void* to, int count) {
  std::memcpy(to, x, std::size_t(count) * sizeof(float));
  return 1;
}

float pack_bf16(const float* x, void* to, int count) {
  const Floats d;
  auto* packed = static_cast<float*>(to);
  for (int k = 0; k < count; k += kLanes) {
    const int some = std::min(kLanes, count - k);
    store_some(d, hn::BitCast(d, hn::ShiftLeft<16>(bf16_bits(d, load_some(d, x + k, some)))),
               packed + k, some);
  }
  if (count % 2) packed[count] = 0;
  return 1;
}

// Ties of rounding go to even.
float quantize(const float* x, void* to, int count) {
  const Floats d;
  Vec size = hn::Zero(d);
  Vec odd = hn::Zero(d);  // NaN once a value is NaN or infinite
  for (int k = 0; k < count; k += kLanes) {
    const Vec v = load_some(d, x + k, std::min(kLanes, count - k));
    size = hn::Max(size, hn::Abs(v));
    odd = hn::MulAdd(v, hn::Zero(d), odd);
  }
  const bool finite = hn::AllTrue(d, hn::Eq(odd, hn::Zero(d)));
  const float largest = finite ? max_of(d, size) : 0;
  const float per_unit = largest < kSmallestChunk ? 0 : kMaxQuantum / largest;
  const hn::Rebind<std::int16_t, Floats> narrow;
  auto* packed = static_cast<std::int16_t*>(to);
  for (int k = 0; k < count; k += kLanes) {
    const int some = std::min(kLanes, count - k);
    const Vec v = finite ? load_some(d, x + k, some) : hn::Zero(d);
    const auto quanta = hn::DemoteTo(narrow, hn::NearestInt(hn::Mul(v, hn::Set(d, per_unit))));
    if (some == kLanes) {
      hn::StoreU(quanta, narrow, packed + k);
    } else {
      alignas(64) std::int16_t lanes[kLanes];
      hn::Store(quanta, narrow, lanes);
      std::copy_n(lanes, some, packed + k);
    }
  }
  if (count % 2) packed[count] = 0;
  return finite ? largest / kMaxQuantum : std::numeric_limits<float>::quiet_NaN();
}

// Accumulators, the panel's vectors and a row's value must fit the registers: 32 of them with
// AVX-512 and NEON, else 16.
#if HWY_TARGET <= HWY_AVX3
constexpr int kRowsAtOnce = 12;
#elif HWY_ARCH_ARM_A64
constexpr int kRowsAtOnce = 6;
#else
constexpr int kRowsAtOnce = 3;
#endif

template <class Kind, int kRows = kRowsAtOnce,
          int kPanels = kVectors <= 4 ? most_panels(kRowsAtOnce, kRows) : 1>
void add_tiles(LinearTiles& tiles) {
  tiles.tile[kRows][kPanels] = tile<Kind, kRows, kPanels>;
  if constexpr (kPanels > 1)
    add_tiles<Kind, kRows, kPanels - 1>(tiles);
  else if constexpr (kRows > 1)
    add_tiles<Kind, kRows - 1>(tiles);
}

template <class Kind>
LinearTiles tiles_of(float (*pack)(const float*, void*, int)) {
  LinearTiles tiles{.pack = pack, .unit = sizeof(typename Kind::X), .max_rows = kRowsAtOnce};
  add_tiles<Kind>(tiles);
  return tiles;
}

const LinearTiles& best_tiles(Dtype dtype) {
  static const LinearTiles f32 = tiles_of<F32>(pack_f32), bf16 = tiles_of<Bf16>(pack_bf16),
                           i8 = tiles_of<I8>(quantize);
  return dtype == Dtype::f32 ? f32 : dtype == Dtype::bf16 ? bf16 : i8;
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(best_tiles);
HWY_EXPORT(quantize);

const LinearTiles& vector_tiles(Dtype dtype) { return HWY_DYNAMIC_DISPATCH(best_tiles)(dtype); }

float pack_quanta(const float* x, void* to, int count) {
  return HWY_DYNAMIC_DISPATCH(quantize)(x, to, count);
}

}  // namespace dex
#endif
