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
  std::ptrdiff_t place_floats() const { return std::ptrdiff_t(p.rows) * kPanel; }
  std::ptrdiff_t panel_floats() const { return place_floats() * kMostWaiting; }
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

// All rows x one panel on one slab; the weights stay near between blocks of rows.
void panel(const Job& job, const PackedX& x, int out, int slab, float* kept, const char* ahead) {
  const Linear& p = job.p;
  const Slab& s = job.plan.slabs[slab];
  LinearTile t;
  t.weight = job.weight_at(out, s.begin);
  t.chunks = job.plan.chunks.data() + s.first_chunk;
  t.chunk_count = s.end_chunk - s.first_chunk;
  t.scale_stride = p.rows;
  t.place_stride = job.place_floats();
  t.outs = std::min(kPanel, p.out - out);
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
    t.kept = kept + std::ptrdiff_t(row) * kPanel;
    t.y = p.y + std::ptrdiff_t(row) * p.out + out;
    const int rows = job.block_begin(block + 1) - row;
    const bool same =
        ahead_plan(rows, p.dtype).every == plan.every;  // the tile goes by the plan of its own rows
    t.ahead_lines = same ? lines * (block + 1) / blocks - lines * block / blocks : 0;
    job.tiles.tile[rows](t);
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

// Few rows: weights in the order they lie in memory, fetched ahead. Many: slab by slab, so that x
// stays near.
void outputs(const Job& job, const PackedX& x, int out, int out_end, const Ahead& ahead) {
  const bool near = std::ssize(x.values) <= kNear;
  const int slabs = int(job.plan.slabs.size());
  const std::ptrdiff_t panels = near ? 1 : ceil_div(out_end - out, kPanel);
  own_sums.resize(std::size_t(ceil_div(panels * job.panel_floats(), 16)));
  float* kept = own_sums.front().values;
  if (near) {
    for (int o = out; o < out_end; o += kPanel)
      for (int s = 0; s < slabs; ++s)
        panel(job, x, o, s, kept, ahead.from(job.weight_at(o, job.plan.slabs[s].begin)));
  } else {
    for (int s = 0; s < slabs; ++s)
      for (int o = out; o < out_end; o += kPanel)
        panel(job, x, o, s, kept + (o - out) / kPanel * job.panel_floats(), nullptr);
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
  const int part = std::clamp(panels / (8 * threads), 1, 4), parts = ceil_div(panels, part);
  pool.run(parts, [&](int i) {
    int share = 0;
    while (i >= pool.share_begin(parts, share + 1)) ++share;
    const int share_end = std::min(panels, pool.share_begin(parts, share + 1) * part) * kPanel;
    const Ahead ahead{
        job.weight_at(share_end, 0),
        p.next ? static_cast<const char*>(p.next) + p.next_bytes * share / threads : nullptr,
        ahead_plan(p.rows, p.dtype).distance};
    outputs(job, shared ? *shared : packed_by_this_thread(job), i * part * kPanel,
            std::min(p.out, (i + 1) * part * kPanel), ahead);
  });
}

void linear(const Linear& p, ThreadPool& pool) {
  const LinearTiles* dot = dot_tiles(p.dtype);
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
