#include "kernels/tree_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tree_attention.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace {

using Vec = hn::Vec<Floats>;
constexpr int kLanes = hn::MaxLanes(Floats());
constexpr int kHeads = 4;    // query heads that share a load of a key
constexpr int kVectors = 4;  // vectors of a value summed at a time

// The keys one row sees for one KV head, by position.
template <class T>
struct Keys {
  const T* keys = nullptr;
  const T* values = nullptr;
  std::ptrdiff_t stride = 0;  // elements between cache rows
  const std::int32_t* rows = nullptr;
  int count = 0, head_dim = 0;

  const T* key(int i) const { return keys + rows[i] * stride; }
  const T* value(int i) const { return values + rows[i] * stride; }
};

// scores[h * pitch + i] = scale * q_h . key_i, every dot product in the same order.
template <class T, int kCount>
void score(const Keys<T>& k, const float* q, float scale, float* scores, std::ptrdiff_t pitch) {
  const Floats d;
  for (int i = 0; i < k.count; i += 4) {
    const T* key[4];
    for (int j = 0; j < 4; ++j) key[j] = k.key(std::min(i + j, k.count - 1));
    Vec sum[kCount][4];
    for (auto& head : sum)
      for (auto& s : head) s = hn::Zero(d);
    const auto add = [&](int at, std::size_t some) HWY_ATTR {
      Vec query[kCount];
#pragma GCC unroll 4
      for (int h = 0; h < kCount; ++h) query[h] = load_some(d, q + h * k.head_dim + at, some);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const Vec v = load_some(d, key[j] + at, some);
#pragma GCC unroll 4
        for (int h = 0; h < kCount; ++h) sum[h][j] = hn::MulAdd(query[h], v, sum[h][j]);
      }
    };
    int at = 0;
    for (; at + kLanes <= k.head_dim; at += kLanes) add(at, kLanes);
    if (at < k.head_dim) add(at, k.head_dim - at);
#pragma GCC unroll 4
    for (int h = 0; h < kCount; ++h) {
      const auto four = sums_of_four(d, sum[h][0], sum[h][1], sum[h][2], sum[h][3]);
      hn::StoreU(hn::Mul(four, hn::Set(Four(), scale)), Four(), scores + h * pitch + i);
    }
  }
}

// Turns scores into e^(score - max), zero in the padding; returns their sum.
float soften(float* scores, int count, std::ptrdiff_t pitch) {
  const Floats d;
  std::fill(scores + count, scores + pitch, -std::numeric_limits<float>::infinity());
  Vec top = hn::Load(d, scores);
  for (std::ptrdiff_t i = kLanes; i < pitch; i += kLanes) top = hn::Max(top, hn::Load(d, scores + i));
  const Vec max = hn::Set(d, max_of(d, top));
  Vec sum = hn::Zero(d);
  for (std::ptrdiff_t i = 0; i < pitch; i += kLanes) {
    const Vec e = exp_of(d, hn::Sub(hn::Load(d, scores + i), max));
    hn::Store(e, d, scores + i);
    sum = hn::Add(sum, e);
  }
  return sum_of(d, sum);
}

// out_h[at ..] = sum over i of weight_h,i * value_i[at ..] / total_h, one position after the other.
template <class T, int kCount>
void mix(const Keys<T>& k, const float* weights, std::ptrdiff_t pitch, const float* totals, int at, float* out) {
  const Floats d;
  const int some = std::min(kVectors * kLanes, k.head_dim - at);
  const int full = some / kLanes * kLanes;
  Vec sum[kCount][kVectors];
  for (auto& head : sum)
    for (auto& s : head) s = hn::Zero(d);
  const auto add = [&](int i, int vector, Vec value) HWY_ATTR {
#pragma GCC unroll 4
    for (int h = 0; h < kCount; ++h)
      sum[h][vector] = hn::MulAdd(hn::Set(d, weights[h * pitch + i]), value, sum[h][vector]);
  };
  if (some == kVectors * kLanes) {
    for (int i = 0; i < k.count; ++i) {
      const T* value = k.value(i) + at;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) add(i, v, load(d, value + v * kLanes));
    }
  } else {
    for (int i = 0; i < k.count; ++i) {
      const T* value = k.value(i) + at;
      for (int v = 0; v < full / kLanes; ++v) add(i, v, load(d, value + v * kLanes));
      if (full < some) add(i, full / kLanes, load_some(d, value + full, some - full));
    }
  }
  for (int h = 0; h < kCount; ++h)
    for (int v = 0; v * kLanes < some; ++v)
      store_some(d, hn::Mul(sum[h][v], hn::Set(d, 1.0f / totals[h])), out + h * k.head_dim + at + v * kLanes,
                 std::min(kLanes, some - v * kLanes));
}

template <class T, int kCount>
void attend_heads(const Keys<T>& k, const float* q, float scale, float* scores, std::ptrdiff_t pitch, float* out) {
  score<T, kCount>(k, q, scale, scores, pitch);
  float totals[kCount];
  for (int h = 0; h < kCount; ++h) totals[h] = soften(scores + h * pitch, k.count, pitch);
  for (int at = 0; at < k.head_dim; at += kVectors * kLanes) mix<T, kCount>(k, scores, pitch, totals, at, out);
}

// One row, one KV head and the query heads that share it.
template <class T>
void attend(const TreeAttention& p, int row, int kv_head) {
  const int seen = p.context_size[row];
  const std::int32_t* branch = p.branch + p.branch_begin[row];
  const int count = seen + p.branch_begin[row + 1] - p.branch_begin[row];
  const std::ptrdiff_t pitch = (count + kLanes - 1) / kLanes * kLanes;

  thread_local std::vector<std::int32_t> rows;
  thread_local std::vector<float> space;
  rows.assign(p.context, p.context + seen);
  rows.insert(rows.end(), branch, branch + (count - seen));
  space.resize(kHeads * pitch + 16);
  float* scores = reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(space.data()) + 63) / 64 * 64);

  const std::ptrdiff_t offset = static_cast<std::ptrdiff_t>(kv_head) * p.head_dim;
  const Keys<T> k{static_cast<const T*>(p.keys) + offset, static_cast<const T*>(p.values) + offset,
                  static_cast<std::ptrdiff_t>(p.kv_heads) * p.head_dim, rows.data(), count, p.head_dim};
  const int group = p.heads / p.kv_heads;
  for (int h = 0; h < group; h += kHeads) {
    const std::ptrdiff_t at = (static_cast<std::ptrdiff_t>(row) * p.heads + kv_head * group + h) * p.head_dim;
    switch (std::min(kHeads, group - h)) {
      case 1: attend_heads<T, 1>(k, p.q + at, p.scale, scores, pitch, p.out + at); break;
      case 2: attend_heads<T, 2>(k, p.q + at, p.scale, scores, pitch, p.out + at); break;
      case 3: attend_heads<T, 3>(k, p.q + at, p.scale, scores, pitch, p.out + at); break;
      default: attend_heads<T, 4>(k, p.q + at, p.scale, scores, pitch, p.out + at);
    }
  }
}

void tree_attention(const TreeAttention& p, int row, int kv_head) {
  if (p.dtype == Dtype::f32) {
    attend<float>(p, row, kv_head);
  } else {
    attend<hwy::bfloat16_t>(p, row, kv_head);
  }
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(tree_attention);

// KV head by KV head: rows that follow each other find the same keys in the cache.
void cpu::tree_attention(const TreeAttention& p, Workers& workers) {
  workers.run(p.rows * p.kv_heads, [&](int part) { HWY_DYNAMIC_DISPATCH(tree_attention)(p, part % p.rows, part / p.rows); });
}

}  // namespace dex
#endif
