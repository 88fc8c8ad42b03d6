#include "kernels/causal_attention.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/ceil_div.h"
#include "kernels/cpu/causal_tiles.h"
#include "kernels/row_ops.h"

namespace dex::cpu {
namespace {

// The packed keys: panels of `width` rows, head_dim deep; then the values: panels of `width` of
// head_dim, all rows deep.
struct Plan {
  const CausalAttention& p;
  const CausalTiles& tiles;

  std::ptrdiff_t units(std::ptrdiff_t depth) const {
    return round_up(depth, tiles.depth) / tiles.depth;
  }
  std::ptrdiff_t key_panel() const { return units(p.head_dim) * tiles.width; }
  std::ptrdiff_t value_panel() const { return units(p.rows) * tiles.width; }
  std::ptrdiff_t key_panels() const { return round_up(p.rows, tiles.width) / tiles.width; }
  std::ptrdiff_t value_panels() const { return round_up(p.head_dim, tiles.width) / tiles.width; }
  std::ptrdiff_t size() const {
    return round_up(key_panel() * key_panels() + value_panel() * value_panels(), 16);
  }
  bool narrow() const { return tiles.depth == 2; }

  float* keys() const { return static_cast<float*>(p.packed); }
  float* values() const { return keys() + key_panel() * key_panels(); }

  // The element of a row that begins head `head`, counted from the first query head.
  std::ptrdiff_t index(int row, int head) const {
    return (std::ptrdiff_t{row} * (p.heads + 2 * p.kv_heads) + head) * p.head_dim;
  }
};

float widened(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// From: what is stored; To: what the tiles multiply, kDepth to a unit.
template <class From, class To, int kDepth>
class Packing {
 public:
  explicit Packing(const Plan& plan) : plan_(plan), from_(static_cast<const From*>(plan.p.qkv)) {}

  void keys() const {
    const CausalAttention& p = plan_.p;
    pack(from_ + plan_.index(0, p.heads + p.kv_head), 1, stride(), p.head_dim, p.rows,
         plan_.keys());
  }
  void values() const {
    const CausalAttention& p = plan_.p;
    pack(from_ + plan_.index(0, p.heads + p.kv_heads + p.kv_head), stride(), 1, p.rows, p.head_dim,
         plan_.values());
  }
  void queries(int first, int count, int head, float* to) const {
    const CausalAttention& p = plan_.p;
    for (int r = 0; r < count; ++r) {
      const From* row = from_ + plan_.index(first + r, head);
      To* packed = reinterpret_cast<To*>(to + r * plan_.units(p.head_dim));
      if constexpr (std::is_same_v<From, To>)
        std::memcpy(packed, row, std::size_t(p.head_dim) * sizeof(To));
      else
        for (int i = 0; i < p.head_dim; ++i) packed[i] = value(row[i]);
      if (p.head_dim % kDepth != 0) packed[p.head_dim] = To{};
    }
  }

 private:
  std::ptrdiff_t stride() const { return plan_.index(1, 0); }
  static To value(From from) {
    if constexpr (std::is_same_v<From, To>)
      return from;
    else
      return widened(from);
  }

  // Zeros where a panel goes beyond the matrix: what is not there weighs nothing.
  void pack(const From* from, std::ptrdiff_t depth_stride, std::ptrdiff_t column_stride, int depth,
            int columns, float* to) const {
    const int width = plan_.tiles.width;
    To* packed = reinterpret_cast<To*>(to);
    for (int begin = 0; begin < columns; begin += width) {
      const int here = std::min(width, columns - begin);
      for (int at = 0; at < depth; at += kDepth, packed += kDepth * width) {
        const From* source = from + at * depth_stride + begin * column_stride;
        const int there = std::min(kDepth, depth - at);
        if (here < width || there < kDepth) std::fill_n(packed, kDepth * width, To{});
        for (int i = 0; i < there; ++i)
          for (int c = 0; c < here; ++c)
            packed[c * kDepth + i] = value(source[i * depth_stride + c * column_stride]);
      }
    }
  }

  const Plan& plan_;
  const From* from_;
};

template <class Call>
void with_packing(const Plan& plan, const Call& call) {
  if (plan.narrow())
    call(Packing<std::uint16_t, std::uint16_t, 2>(plan));
  else if (plan.p.dtype == Dtype::bf16)
    call(Packing<std::uint16_t, float, 1>(plan));
  else
    call(Packing<float, float, 1>(plan));
}

float* aligned(std::vector<float>& memory, std::ptrdiff_t floats) {
  if (std::ssize(memory) < floats + 16) memory.resize(floats + 16);
  return reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
}

// Rows [first, end): their scores, whole rows of them, then what they weigh.
class Rows {
 public:
  Rows(const Plan& plan, int first, int end)
      : plan_(plan), first_(first), count_(end - first), pitch_(round_up(end, kCausalWidth)) {
    thread_local std::vector<float> scores, queries, mixed;
    scores_ = aligned(scores, count_ * pitch_);
    queries_ = aligned(queries, count_ * plan.units(plan.p.head_dim));
    mixed_ = aligned(mixed, kCausalRows * mixed_pitch());
  }

  void attend(int head) const {
    with_packing(plan_,
                 [&](const auto& packing) { packing.queries(first_, count_, head, queries_); });
    score();
    for (int begin = 0; begin < count_; begin += kCausalRows)
      mix(head, begin, std::min(kCausalRows, count_ - begin));
  }

 private:
  std::ptrdiff_t mixed_pitch() const { return round_up(plan_.p.head_dim, kCausalWidth); }

  void score() const {
    const std::ptrdiff_t units = plan_.units(plan_.p.head_dim);
    const int width = plan_.tiles.width;
    for (int key = 0; key < first_ + count_; key += width)
      for (int row = 0; row < count_; row += kCausalRows)
        plan_.tiles.tile[std::min(kCausalRows, count_ - row)](
            {.left = queries_ + row * units,
             .panel = plan_.keys() + key / width * plan_.key_panel(),
             .left_stride = units,
             .out = scores_ + row * pitch_ + key,
             .out_stride = pitch_,
             .units = units});
  }

  void mix(int head, int begin, int count) const {
    const CausalAttention& p = plan_.p;
    const int seen = first_ + begin + count;  // by the last row
    float totals[kCausalRows];
    for (int r = 0; r < count; ++r)
      totals[r] = soften_causal(scores_ + (begin + r) * pitch_, first_ + begin + r + 1,
                                int(round_up(seen, 16)), p.scale, plan_.narrow());
    for (std::ptrdiff_t panel = 0; panel < plan_.value_panels(); ++panel)
      plan_.tiles.tile[count]({.left = scores_ + begin * pitch_,
                               .panel = plan_.values() + panel * plan_.value_panel(),
                               .left_stride = pitch_,
                               .out = mixed_ + panel * plan_.tiles.width,
                               .out_stride = mixed_pitch(),
                               .units = plan_.units(seen)});
    for (int r = 0; r < count; ++r) {
      float* row = mixed_ + r * mixed_pitch();
      const float share = 1.0f / totals[r];
      for (int i = 0; i < p.head_dim; ++i) row[i] *= share;
      const std::ptrdiff_t to = (std::ptrdiff_t{first_ + begin + r} * p.heads + head) * p.head_dim;
      convert(row, static_cast<char*>(p.out) + to * size_of(p.dtype), p.head_dim, p.dtype);
    }
  }

  const Plan& plan_;
  int first_, count_;
  std::ptrdiff_t pitch_;
  float *scores_, *queries_, *mixed_;
};

const CausalTiles& best_tiles(const CausalAttention& p) {
  const CausalTiles* narrow = p.dtype == Dtype::bf16 ? bf16_causal_tiles() : nullptr;
  return narrow ? *narrow : vector_causal_tiles();
}

}  // namespace

std::size_t causal_packed_bytes(const CausalAttention& p, const CausalTiles& tiles) {
  return std::size_t(Plan{p, tiles}.size()) * sizeof(float);
}

void pack_causal(const CausalAttention& p, const CausalTiles& tiles) {
  const Plan plan{p, tiles};
  with_packing(plan, [](const auto& packing) {
    packing.keys();
    packing.values();
  });
}

void attend_causally(const CausalAttention& p, int first, int end, const CausalTiles& tiles) {
  if (first >= end) return;
  const Plan plan{p, tiles};
  const Rows rows(plan, first, end);
  const int group = p.heads / p.kv_heads;
  for (int head = p.kv_head * group; head < (p.kv_head + 1) * group; ++head) rows.attend(head);
}

std::size_t causal_packed_bytes(const CausalAttention& p) {
  return causal_packed_bytes(p, best_tiles(p));
}
void pack_causal(const CausalAttention& p) { pack_causal(p, best_tiles(p)); }
void attend_causally(const CausalAttention& p, int first, int end) {
  attend_causally(p, first, end, best_tiles(p));
}

}  // namespace dex::cpu
