#include "kernels/row_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_ops.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace {

using Vec = hn::Vec<Floats>;

// Calls body(i, count) for each vector of [0, size), the last one perhaps short.
template <class Body>
HWY_INLINE void each_vector(std::int64_t size, const Body& body) {
  const std::int64_t lanes = hn::Lanes(Floats());
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) body(i, lanes);
  if (i < size) body(i, size - i);
}

void rms_norm(const RmsNorm& p) {
  const Floats d;
  for (int r = 0; r < p.rows; ++r) {
    const float* x = p.x + std::int64_t(r) * p.size;
    float* y = p.y + std::int64_t(r) * p.size;
    Vec squares = hn::Zero(d);
    each_vector(p.size, [&](std::int64_t i, std::size_t count) HWY_ATTR {
      const Vec v = load_some(d, x + i, count);
      squares = hn::MulAdd(v, v, squares);
    });
    const Vec scale = hn::Set(d, 1.0f / std::sqrt(sum_of(d, squares) / float(p.size) + p.eps));
    each_vector(p.size, [&](std::int64_t i, std::size_t count) HWY_ATTR {
      const Vec v = hn::Mul(load_some(d, x + i, count), scale);
      store_some(d, hn::Mul(v, load_some(d, p.weight + i, count)), y + i, count);
    });
  }
}

// Angles are position x frequency in float, as the models were trained; they are brought to one
// turn in double, because float sines lose their meaning far from zero.
void sines_and_cosines(float position, const float* frequencies, int count, float* sines,
                       float* cosines) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> d;
  const auto turn = hn::Set(dd, 2 * std::numbers::pi),
             per_turn = hn::Set(dd, 1 / (2 * std::numbers::pi));
  const int lanes = int(hn::Lanes(dd));
  for (int i = 0; i < count; i += lanes) {
    const std::size_t some = std::min(lanes, count - i);
    const auto angle = hn::Mul(load_some(d, frequencies + i, some), hn::Set(d, position));
    const auto wide = hn::PromoteTo(dd, angle);
    const auto turns = hn::Round(hn::Mul(wide, per_turn));
    const auto reduced = hn::DemoteTo(d, hn::NegMulAdd(turns, turn, wide));
    store_some(d, hn::Sin(d, reduced), sines + i, some);
    store_some(d, hn::Cos(d, reduced), cosines + i, some);
  }
}

void rotate(float* x, const float* sines, const float* cosines, int half) {
  const Floats d;
  each_vector(half, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    const Vec a = load_some(d, x + i, count), b = load_some(d, x + half + i, count);
    const Vec s = load_some(d, sines + i, count), c = load_some(d, cosines + i, count);
    store_some(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), x + i, count);
    store_some(d, hn::MulAdd(a, s, hn::Mul(b, c)), x + half + i, count);
  });
}

void rope(const Rope& p) {
  const int half = p.head_dim / 2;
  thread_local std::vector<float> table;
  table.resize(2 * std::size_t(half));
  float* sines = table.data();
  float* cosines = sines + half;
  for (int r = 0; r < p.rows; ++r) {
    sines_and_cosines(float(p.positions[r]), p.inverse_frequencies, half, sines, cosines);
    for (int h = 0; h < p.heads; ++h)
      rotate(p.x + (std::int64_t(r) * p.heads + h) * p.head_dim, sines, cosines, half);
  }
}

void rotate_row(const Rotate& p) {
  for (int h = 0; h < p.heads; ++h)
    rotate(p.x + std::int64_t{h} * p.head_dim, p.sines, p.cosines, p.head_dim / 2);
}

void silu_mul(const SiluMul& p) {
  const Floats d;
  const Vec one = hn::Set(d, 1.0f);
  each_vector(p.count, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    const Vec gate = load_some(d, p.gate + i, count);
    Vec y = hn::Div(gate, hn::Add(one, exp_of(d, hn::Neg(gate))));
    if (p.up) y = hn::Mul(y, load_some(d, p.up + i, count));
    store_some(d, y, p.y + i, count);
  });
}

void axpy(const Axpy& p) {
  const Floats d;
  const Vec scale = hn::Set(d, p.scale);
  each_vector(p.count, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    store_some(d, hn::MulAdd(scale, load_some(d, p.x + i, count), load_some(d, p.y + i, count)),
               p.y + i, count);
  });
}

void to_bf16(const float* from, std::uint16_t* to, std::int64_t count) {
  const Floats d;
  const hn::Rebind<std::uint16_t, Floats> narrow;
  const hn::RebindToSigned<Floats> wide;
  each_vector(count, [&](std::int64_t i, std::size_t some) HWY_ATTR {
    const auto bits =
        hn::DemoteTo(narrow, hn::BitCast(wide, bf16_bits(d, load_some(d, from + i, some))));
    alignas(64) std::uint16_t lanes[hn::MaxLanes(Floats())];
    hn::Store(bits, narrow, lanes);
    std::memcpy(to + i, lanes, some * sizeof(std::uint16_t));
  });
}

void from_bf16(const hwy::bfloat16_t* from, float* to, std::int64_t count) {
  const Floats d;
  each_vector(count, [&](std::int64_t i, std::size_t some)
                         HWY_ATTR { store_some(d, load_some(d, from + i, some), to + i, some); });
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(rms_norm);
HWY_EXPORT(rope);
HWY_EXPORT(rotate_row);
HWY_EXPORT(silu_mul);
HWY_EXPORT(axpy);
HWY_EXPORT(to_bf16);
HWY_EXPORT(from_bf16);

void convert(const float* from, void* to, std::int64_t count, Dtype dtype) {
  if (count <= 0) return;
  if (dtype == Dtype::f32) {
    std::memcpy(to, from, std::size_t(count) * sizeof(float));
  } else {
    HWY_DYNAMIC_DISPATCH(to_bf16)(from, static_cast<std::uint16_t*>(to), count);
  }
}

void widen(const void* from, float* to, std::int64_t count, Dtype dtype) {
  if (count <= 0) return;
  if (dtype == Dtype::f32) {
    std::memcpy(to, from, std::size_t(count) * sizeof(float));
  } else {
    HWY_DYNAMIC_DISPATCH(from_bf16)(static_cast<const hwy::bfloat16_t*>(from), to, count);
  }
}

namespace cpu {

void rms_norm(const RmsNorm& p) { HWY_DYNAMIC_DISPATCH(rms_norm)(p); }
void rope(const Rope& p) { HWY_DYNAMIC_DISPATCH(rope)(p); }
void rotate(const Rotate& p) { HWY_DYNAMIC_DISPATCH(rotate_row)(p); }
void silu_mul(const SiluMul& p) { HWY_DYNAMIC_DISPATCH(silu_mul)(p); }
void axpy(const Axpy& p) { HWY_DYNAMIC_DISPATCH(axpy)(p); }

void kv_append(const KvAppend& p) {
  for (int r = 0; r < p.rows; ++r) {
    const std::int64_t from = std::int64_t(r) * p.row_size;
    const std::int64_t to = std::int64_t(p.cache_rows[r]) * p.row_size * size_of(p.dtype);
    convert(p.k + from, static_cast<char*>(p.keys) + to, p.row_size, p.dtype);
    convert(p.v + from, static_cast<char*>(p.values) + to, p.row_size, p.dtype);
  }
}

}  // namespace cpu
}  // namespace dex
#endif
