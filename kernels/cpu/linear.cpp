#include "kernels/linear.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/ceil_div.h"
#include "kernels/cpu/linear_tiles.h"

namespace dex::cpu {
namespace {

// packed x up to this size stays in the second cache as it is
constexpr std::ptrdiff_t kNear = 512 << 10;

// Slab after slab, in each row after row; scales chunk after chunk, in each row after row.
struct PackedX {
  std::uint64_t call = 0;  // whose x this is
  std::vector<char> values;
  std::vector<float> scales;
};
thread_local PackedX own_x;

// A line of the first cache: what waits in the tree is read and written by whole vectors.
struct alignas(64) Line {
  float values[16];
};
thread_local std::vector<Line> own_sums;
thread_local SumPlan own_plan;  // of the linear that this thread has called

struct Job {
  const Linear& p;
  const LinearTiles& tiles;
  std::uint64_t call;
  const SumPlan& plan;
  int columns = p.columns();

  // Blocks of nearly equal size.
  int blocks() const { return ceil_div(p.rows, tiles.max_rows); }
  int block_begin(int block) const { return int(std::int64_t{p.rows} * block / blocks()); }

  std::size_t slab_rows() const { return plan.slabs.size() * std::size_t(p.rows); }
  std::size_t slab_row_bytes() const {
    return std::size_t(kInputChunk / step_of(p.dtype)) * tiles.unit;
  }
  // Of packed x: a row of slab number `slab`.
  std::size_t slab_row_at(int slab, int row) const {
    return (std::size_t(slab) * p.rows + row) * slab_row_bytes();
  }
  const char* weight_at(int out, int column) const {
    return static_cast<const char*>(p.weight) +
           packed_index(out, column, columns, p.dtype) * size_of(p.dtype);
  }
  // Of a few rows; of more, one panel at a time.
  int panels_at_once() const { return blocks() == 1 ? tiles.panels_at_once(p.rows) : 1; }
  // of the sums that wait, for so many panels
  std::ptrdiff_t place_floats(int panels) const { return std::ptrdiff_t(p.rows) * panels * kPanel; }
  std::ptrdiff_t kept_floats(int panels) const { return place_floats(panels) * kMostWaiting; }
};

void make_room(const Job& job, PackedX& x) {
  x.values.resize(job.slab_rows() * job.slab_row_bytes());
  x.scales.resize(job.plan.chunks.size() * std::size_t(job.p.rows));
  x.call = job.call;
}

void pack_row(const Job& job, PackedX& x, int row) {
  const float* from = job.p.x + std::ptrdiff_t(row) * job.columns;
  for (int s = 0; s < int(job.plan.slabs.size()); ++s) {
    const Slab& slab = job.plan.slabs[s];
    for (int c = slab.first_chunk; c < slab.end_chunk; ++c) {
      const SumChunk& chunk = job.plan.chunks[c];
      const int steps_before = (chunk.begin - slab.begin) / step_of(job.p.dtype);
      x.scales[std::size_t(c) * job.p.rows + row] = job.tiles.pack(
          from + chunk.begin,
          x.values.data() + job.slab_row_at(s, row) + std::ptrdiff_t(steps_before) * job.tiles.unit,
          chunk.count);
    }
  }
}

// A few rows: each thread packs them for itself, which takes less time than to fetch them from
// another's cache.
const PackedX& packed_by_this_thread(const Job& job) {
  if (own_x.call != job.call) {
    make_room(job, own_x);
    for (int row = 0; row < job.p.rows; ++row) pack_row(job, own_x, row);
  }
  return own_x;
}

// All rows x a few panels on one slab; the weights stay near between blocks of rows.
void multiply(const Job& job, const PackedX& x, int out, int panels, int slab, float* kept,
              const char* ahead) {
  const Linear& p = job.p;
  const Slab& s = job.plan.slabs[slab];
  LinearTile t;
  t.weight = job.weight_at(out, s.begin);
  t.panel_stride = packed_index(kPanel, 0, job.columns, p.dtype);
  t.chunks = job.plan.chunks.data() + s.first_chunk;
  t.chunk_count = s.end_chunk - s.first_chunk;
  t.scale_stride = p.rows;
  t.place_stride = job.place_floats(panels);
  t.outs = std::min(panels * kPanel, p.out - out);
  t.y_stride = p.out;
  t.scales = p.scales && p.share.whole() ? p.scales + out : nullptr;
  t.bias = p.bias && p.share.whole() ? p.bias + out : nullptr;
  const int blocks = job.blocks();
  const AheadPlan plan = ahead_plan(p.rows, p.dtype);
  const int lines =
      ahead ? int(kGroup * kPanel * step_of(p.dtype) * size_of(p.dtype) / plan.every) : 0;
  std::int64_t groups = 0;
  for (int c = 0; c < t.chunk_count; ++c) groups += steps_of(t.chunks[c].count, p.dtype) / kGroup;
  t.ahead = ahead;
  for (int block = 0; block < blocks; ++block) {
    const int row = job.block_begin(block);
    t.x = x.values.data() + job.slab_row_at(slab, row);
    t.x_scales = x.scales.data() + std::size_t(s.first_chunk) * p.rows + row;
    t.kept = kept + std::ptrdiff_t(row) * panels * kPanel;
    t.y = p.y + std::ptrdiff_t(row) * p.out + out;
    const int rows = job.block_begin(block + 1) - row;
    const bool same =
        ahead_plan(rows, p.dtype).every == plan.every;  // the tile goes by the plan of its own rows
    t.ahead_lines = same ? lines * (block + 1) / blocks - lines * block / blocks : 0;
    job.tiles.tile[rows][panels](t);
    t.ahead += t.ahead_lines * plan.every * groups;
  }
}

// Where a thread's share of the weights ends, and where its share of the next linear's begins:
// memory is never left idle between two operators.
struct Ahead {
  const char *end, *next;
  std::ptrdiff_t distance;

  const char* from(const char* at) const {
    at += distance;
    return at < end ? at : next ? next + (at - end) : nullptr;
  }
};

// Few rows: weights in the order they lie in memory, as several streams or fetched ahead. Many:
// slab by slab, so that x stays near.
void outputs(const Job& job, const PackedX& x, int out, int out_end, const Ahead& ahead) {
  const bool near = std::ssize(x.values) <= kNear;
  const int slabs = int(job.plan.slabs.size()), panels = ceil_div(out_end - out, kPanel);
  const int groups = near ? ceil_div(panels, job.panels_at_once()) : panels;
  const auto group_begin = [&](int g) { return int(std::int64_t{panels} * g / groups); };
  own_sums.resize(std::size_t(ceil_div(job.kept_floats(near ? kMostPanels : panels), 16)));
  float* kept = own_sums.front().values;
  if (near) {
    for (int g = 0; g < groups; ++g) {
      const int first = out + group_begin(g) * kPanel, count = group_begin(g + 1) - group_begin(g);
      for (int s = 0; s < slabs; ++s)
        multiply(job, x, first, count, s, kept,
                 ahead.from(job.weight_at(first, job.plan.slabs[s].begin)));
    }
  } else {
    for (int s = 0; s < slabs; ++s)
      for (int p = 0; p < panels; ++p)
        multiply(job, x, out + p * kPanel, 1, s, kept + p * job.kept_floats(1), nullptr);
  }
}

}  // namespace

void linear(const Linear& p, ThreadPool& pool, const LinearTiles& tiles) {
  if (p.rows <= 0 || p.out <= 0) return;
  static std::atomic<std::uint64_t> calls{0};
  own_plan.make(p);
  if (own_plan.chunks.empty()) {  // a share of empty parts
    std::fill_n(p.y, std::ptrdiff_t(p.rows) * p.out, -0.0f);
    return;
  }
  const Job job{.p = p, .tiles = tiles, .call = ++calls, .plan = own_plan};
  PackedX* shared = job.blocks() > 1 ? &own_x : nullptr;
  if (shared) {
    make_room(job, *shared);
    pool.run(p.rows, [&](int row) { pack_row(job, *shared, row); });
  }

  const int threads = pool.threads(), panels = int(panels_of(p.out));
  const int wanted = std::max(job.panels_at_once(), std::clamp(panels / (8 * threads), 1, 4));
  // as many parts for every thread, of nearly equal size
  const int parts =
      std::min(panels, threads * std::max(1, (panels + threads * wanted / 2) / (threads * wanted)));
  const auto out_begin = [&](int part) {
    return std::min(p.out, int(std::int64_t{panels} * part / parts) * kPanel);
  };
  pool.run(parts, [&](int i) {
    int share = 0;
    while (i >= pool.share_begin(parts, share + 1)) ++share;
    const Ahead ahead{
        job.weight_at(round_up(out_begin(pool.share_begin(parts, share + 1)), kPanel), 0),
        p.next ? static_cast<const char*>(p.next) + p.next_bytes * share / threads : nullptr,
        ahead_plan(p.rows, p.dtype).distance};
    outputs(job, shared ? *shared : packed_by_this_thread(job), out_begin(i), out_begin(i + 1),
            ahead);
  });
}

void linear(const Linear& p, ThreadPool& pool) {
  const LinearTiles* dot = p.dtype == Dtype::i8 ? int8_dot_tiles() : nullptr;
  linear(p, pool, dot ? *dot : vector_tiles(p.dtype));
}

void finish_linear(const FinishLinear& p) {
  const std::ptrdiff_t each = std::ptrdiff_t(p.rows) * p.out;
  for (std::ptrdiff_t i = 0; i < each; ++i) {
    float sums[kInputParts];
    for (int s = 0; s < p.shares; ++s) sums[s] = p.partials[s * each + i];
    for (int n = p.shares; n > 1; n /= 2)
      for (int s = 0; s < n / 2; ++s) sums[s] = sums[2 * s] + sums[2 * s + 1];
    const std::ptrdiff_t out = i % p.out;
    if (p.scales) sums[0] *= p.scales[out];
    p.y[i] = p.bias ? sums[0] + p.bias[out] : sums[0];
  }
}

}  // namespace dex::cpu
