#include "kernels/tree_attention.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/ceil_div.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tree_attention.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/key_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace {

using Vec = hn::Vec<Floats>;
constexpr int kTile = 6;  // queries that share a load of a key or a value
// vectors of a value summed at a time: what the registers hold
constexpr int kVectors = kLanes == 16 ? 4 : 2;

template <class T>
struct CacheRows {  // of one KV head
  const T* first = nullptr;
  std::ptrdiff_t stride = 0;
  const T* row(std::int32_t i) const { return first + i * stride; }
};

// A query head of a row, what it scored and the row it belongs to.
struct Query {
  const float* q = nullptr;
  float* scores = nullptr;  // by position
  float* out = nullptr;
  int row = 0;
};

// scores_q[i] = scale * q . key_i for a block of keys; a dot product runs through head_dim in
// order, in one lane.
template <int kCount>
void score_tile(const Query* tile, const float* columns, int head_dim, float scale,
                float* const* to) {
  const Floats d;
  Vec sum[kCount][2];
  for (auto& query : sum) query[0] = query[1] = hn::Zero(d);
  for (int i = 0; i < head_dim; ++i) {
    const Vec left = hn::Load(d, columns + i * kBlock),
              right = hn::Load(d, columns + i * kBlock + kLanes);
#pragma GCC unroll 6
    for (int q = 0; q < kCount; ++q) {
      const Vec x = hn::Set(d, tile[q].q[i]);
      sum[q][0] = hn::MulAdd(x, left, sum[q][0]);
      sum[q][1] = hn::MulAdd(x, right, sum[q][1]);
    }
  }
#pragma GCC unroll 6
  for (int q = 0; q < kCount; ++q) {
    hn::StoreU(hn::Mul(sum[q][0], hn::Set(d, scale)), d, to[q]);
    hn::StoreU(hn::Mul(sum[q][1], hn::Set(d, scale)), d, to[q] + kLanes);
  }
}

// Turns scores into e^(score - max), zero up to the next vector; returns their sum.
float soften(float* scores, int count) {
  const Floats d;
  const int padded = round_up(count, kLanes);
  std::fill(scores + count, scores + padded, kLowest);
  Vec top = hn::Load(d, scores);
  for (int i = kLanes; i < padded; i += kLanes) top = hn::Max(top, hn::Load(d, scores + i));
  const Vec max = hn::Set(d, max_of(d, top));
  Vec sum = hn::Zero(d);
  for (int i = 0; i < padded; i += kLanes) {
    const Vec e = exp_of(d, hn::Sub(hn::Load(d, scores + i), max));
    hn::Store(e, d, scores + i);
    sum = hn::Add(sum, e);
  }
  return sum_of(d, sum);
}

// out_q += weight_q,i * value_i over `count` positions from `begin` on, one position after the
// other.
template <class T, int kCount>
void mix_tile(const Query* tile, const CacheRows<T>& values, const std::int32_t* rows, int begin,
              int count, int head_dim) {
  const Floats d;
  for (int at = 0; at < head_dim; at += kVectors * kLanes) {
    const int some = std::min(kVectors * kLanes, head_dim - at);
    const int vectors = ceil_div(some, kLanes), last = some - (vectors - 1) * kLanes;
    Vec sum[kCount][kVectors];
    for (int q = 0; q < kCount; ++q)
      for (int v = 0; v < kVectors; ++v) {
        const float* so_far = tile[q].out + at + v * kLanes;
        sum[q][v] =
            v < vectors ? load_some(d, so_far, v + 1 < vectors ? kLanes : last) : hn::Zero(d);
      }
    const auto add = [&](int i, int vector, Vec value) HWY_ATTR {
#pragma GCC unroll 6
      for (int q = 0; q < kCount; ++q)
        sum[q][vector] = hn::MulAdd(hn::Set(d, tile[q].scores[begin + i]), value, sum[q][vector]);
    };
    if (some == kVectors * kLanes) {
      for (int i = 0; i < count; ++i) {
        const T* value = values.row(rows[i]) + at;
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) add(i, v, load(d, value + v * kLanes));
      }
    } else {
      for (int i = 0; i < count; ++i) {
        const T* value = values.row(rows[i]) + at;
        for (int v = 0; v + 1 < vectors; ++v) add(i, v, load(d, value + v * kLanes));
        add(i, vectors - 1, load_some(d, value + (vectors - 1) * kLanes, last));
      }
    }
    for (int q = 0; q < kCount; ++q)
      for (int v = 0; v < vectors; ++v)
        store_some(d, sum[q][v], tile[q].out + at + v * kLanes, v + 1 < vectors ? kLanes : last);
  }
}

template <class Call>
void with_count(int count, const Call& call) {
  switch (count) {
    case 1:
      return call(std::integral_constant<int, 1>());
    case 2:
      return call(std::integral_constant<int, 2>());
    case 3:
      return call(std::integral_constant<int, 3>());
    case 4:
      return call(std::integral_constant<int, 4>());
    case 5:
      return call(std::integral_constant<int, 5>());
    default:
      return call(std::integral_constant<int, kTile>());
  }
}

// What a thread keeps between calls.
struct Space {
  std::vector<float> scores, columns, ancestors_scores;
  std::vector<Query> queries;

  static Space& mine() {
    static thread_local Space space;
    return space;
  }
  static float* aligned(std::vector<float>& memory, std::ptrdiff_t floats) {
    if (std::ssize(memory) < floats + 16) memory.resize(floats + 16);
    return reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 *
                                    64);
  }
};

// Rows [first, end) and the query heads that share one KV head. Nothing a row computes depends on
// the others here.
template <class T>
class Group {
 public:
  Group(const TreeAttention& p, int kv_head, int first, int end, Space& space)
      : p_(p),
        first_(first),
        end_(end),
        keys_(of_head(p.keys, kv_head)),
        values_(of_head(p.values, kv_head)),
        space_(space) {
    int longest = 0;
    for (int r = first; r < end; ++r) {
      context_ = std::max(context_, p.context_size[r]);
      longest = std::max(longest, p.context_size[r] + ancestors_size(r));
    }
    const std::ptrdiff_t pitch = round_up(std::max(longest, context_), kBlock);
    const int heads = p.heads / p.kv_heads;
    float* scores = Space::aligned(space.scores, heads * (end - first) * pitch);
    space.queries.clear();
    for (int r = first; r < end; ++r)
      for (int h = 0; h < heads; ++h, scores += pitch) {
        const std::ptrdiff_t at = (std::ptrdiff_t{r} * p.heads + kv_head * heads + h) * p.head_dim;
        space.queries.push_back({p.q + at, scores, p.out + at, r});
      }
    columns_ = Space::aligned(space.columns, std::ptrdiff_t{kBlock} * (p.head_dim + kPiece<T>));
  }

  void attend() const {
    score_context();
    score_branches();
    for_tiles([&](const Query* tile, int count) { mix(tile, count); });
  }

 private:
  CacheRows<T> of_head(const void* rows, int kv_head) const {
    const std::ptrdiff_t size = p_.head_dim;
    return {static_cast<const T*>(rows) + kv_head * size, p_.kv_heads * size};
  }
  int ancestors_size(int row) const {
    return p_.ancestors_begin[row + 1] - p_.ancestors_begin[row];
  }

  template <class Call>
  void for_tiles(const Call& call) const {
    const int queries = space_.queries.size();
    for (int begin = 0; begin < queries; begin += kTile)
      call(space_.queries.data() + begin, std::min(kTile, queries - begin));
  }

  // to(query): where the scores of the block's keys go, all kBlock of them.
  template <class To>
  void score_block(const std::int32_t* rows, int count, const To& to) const {
    const T* keys[kBlock];
    for (int i = 0; i < kBlock; ++i) keys[i] = keys_.row(rows[std::min(i, count - 1)]);
    write_columns(keys, p_.head_dim, columns_);
    for_tiles([&](const Query* tile, int size) {
      float* scores[kTile];
      for (int q = 0; q < size; ++q) scores[q] = to(tile + q);
      with_count(size, [&](auto n) {
        score_tile<n.value>(tile, columns_, p_.head_dim, p_.scale, scores);
      });
    });
  }

  // Asks for a block of the context; rows of a cache come too far apart for the hardware to guess.
  [[gnu::always_inline]] void fetch(const CacheRows<T>& rows, int begin) const {
    for (int i = begin; i < std::min(begin + kBlock, context_); ++i) {
      const char* row = reinterpret_cast<const char*>(rows.row(p_.context[i]));
      for (std::size_t at = 0; at < std::size_t(p_.head_dim) * sizeof(T); at += 64)
        __builtin_prefetch(row + at, 0, 2);
    }
  }

  // What a row scores beyond its own context is written over later.
  void score_context() const {
    fetch(keys_, 0);
    for (int begin = 0; begin < context_; begin += kBlock) {
      fetch(keys_, begin + kBlock);
      fetch(values_, begin);
      score_block(p_.context + begin, std::min(kBlock, context_ - begin),
                  [&](const Query* q) { return q->scores + begin; });
    }
  }

  // The rows' branches lie end to end: each block is scored for every query, and each keeps what is
  // its own.
  void score_branches() const {
    const Query* queries = space_.queries.data();
    space_.ancestors_scores.resize(space_.queries.size() * kBlock);
    const auto scores_of = [&](const Query* q) {
      return space_.ancestors_scores.data() + (q - queries) * kBlock;
    };
    for (int begin = p_.ancestors_begin[first_]; begin < p_.ancestors_begin[end_];
         begin += kBlock) {
      const int count = std::min(kBlock, p_.ancestors_begin[end_] - begin);
      score_block(p_.ancestors + begin, count, scores_of);
      for (const Query& q : space_.queries) {
        const int own = p_.ancestors_begin[q.row], from = std::max(begin, own);
        const int size = std::min(begin + count, own + ancestors_size(q.row)) - from;
        if (size <= 0) continue;
        std::copy_n(scores_of(&q) + (from - begin), size,
                    q.scores + p_.context_size[q.row] + (from - own));
      }
    }
  }

  // The context that all rows of the tile see is summed together; then each row goes on alone.
  void mix(const Query* tile, int count) const {
    float totals[kTile];
    int shared = p_.context_size[tile->row];
    for (int q = 0; q < count; ++q) {
      const int context = p_.context_size[tile[q].row];
      totals[q] = soften(tile[q].scores, context + ancestors_size(tile[q].row));
      shared = std::min(shared, context);
      std::fill_n(tile[q].out, p_.head_dim, 0.0f);
    }
    mix_in(tile, count, p_.context, 0, shared);
    for (int q = 0, next; q < count; q = next) {
      const int row = tile[q].row, context = p_.context_size[row];
      for (next = q + 1; next < count && tile[next].row == row;) ++next;
      mix_in(tile + q, next - q, p_.context + shared, shared, context - shared);
      mix_in(tile + q, next - q, p_.ancestors + p_.ancestors_begin[row], context,
             ancestors_size(row));
    }
    for (int q = 0; q < count; ++q)
      for (int i = 0; i < p_.head_dim; ++i) tile[q].out[i] *= 1.0f / totals[q];
  }

  void mix_in(const Query* tile, int count, const std::int32_t* rows, int position,
              int positions) const {
    if (positions == 0) return;
    with_count(count, [&](auto n) {
      mix_tile<T, n.value>(tile, values_, rows, position, positions, p_.head_dim);
    });
  }

  const TreeAttention& p_;
  int first_, end_, context_ = 0;
  CacheRows<T> keys_, values_;
  Space& space_;
  float* columns_ = nullptr;
};

void tree_attention(const TreeAttention& p, int kv_head, int first, int end) {
  if (p.dtype == Dtype::f32) {
    Group<float>(p, kv_head, first, end, Space::mine()).attend();
  } else {
    Group<hwy::bfloat16_t>(p, kv_head, first, end, Space::mine()).attend();
  }
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(tree_attention);

namespace {

// Rows that share a task: many share the work on a key, few keep the scores in a near cache and
// every thread busy.
int rows_per_task(const TreeAttention& p, int threads) {
  constexpr int kMostRows = 16;
  constexpr std::ptrdiff_t kMostScores = 64 * 1024;
  std::ptrdiff_t longest = 1;
  for (int r = 0; r < p.rows; ++r)
    longest = std::max(longest, std::ptrdiff_t{p.context_size[r]} + p.ancestors_begin[r + 1] -
                                    p.ancestors_begin[r]);
  const std::ptrdiff_t fit =
      std::min<std::ptrdiff_t>(kMostRows, kMostScores / (longest * (p.heads / p.kv_heads)));
  const int tasks = threads == 1 ? 1 : ceil_div(2 * threads, p.kv_heads);
  return std::clamp(int(fit), 1, std::max(1, ceil_div(p.rows, tasks)));
}

}  // namespace

// KV head by KV head: rows that follow each other find the same keys in the cache.
void cpu::tree_attention(const TreeAttention& p, ThreadPool& pool) {
  if (p.rows == 0) return;
  const int size = rows_per_task(p, pool.threads()), groups = ceil_div(p.rows, size);
  pool.run(groups * p.kv_heads, [&](int part) {
    const int first = part % groups * size;
    HWY_DYNAMIC_DISPATCH(tree_attention)(p, part / groups, first, std::min(p.rows, first + size));
  });
}

}  // namespace dex
#endif
