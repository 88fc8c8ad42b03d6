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

// Chunk after chunk, in each row after row.
struct PackedX {
  std::uint64_t call = 0;  // whose x this is
  std::vector<char> values;
  std::vector<float> scales;
};
thread_local PackedX own_x;

struct Job {
  const Linear& p;
  const LinearTiles& tiles;
  std::uint64_t call;

  int count(int k) const { return std::min(kChunk, p.in - k); }
  // Blocks of nearly equal size.
  int blocks() const { return ceil_div(p.rows, tiles.max_rows); }
  int block_begin(int block) const { return int(std::int64_t{p.rows} * block / blocks()); }

  std::size_t chunk_row(int row, int k) const { return std::size_t(k / kChunk) * p.rows + row; }
  std::size_t chunk_rows() const { return std::size_t(ceil_div(p.in, kChunk)) * p.rows; }
  std::size_t chunk_row_bytes() const {
    return std::size_t(kChunk / step_of(p.dtype)) * tiles.unit;
  }
  const char* weight_at(int out, int k) const {
    return static_cast<const char*>(p.weight) +
           packed_index(out, k, p.in, p.dtype) * size_of(p.dtype);
  }
};

void make_room(const Job& job, PackedX& x) {
  x.values.resize(job.chunk_rows() * job.chunk_row_bytes());
  x.scales.resize(job.chunk_rows());
  x.call = job.call;
}

void pack_row(const Job& job, PackedX& x, int row) {
  for (int k = 0; k < job.p.in; k += kChunk) {
    const std::size_t at = job.chunk_row(row, k);
    x.scales[at] = job.tiles.pack(job.p.x + std::ptrdiff_t(row) * job.p.in + k,
                                  x.values.data() + at * job.chunk_row_bytes(), job.count(k));
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

// All rows x one panel on the chunk at k; the weights stay near between blocks of rows.
void panel(const Job& job, const PackedX& x, int out, int k, const char* ahead) {
  const Linear& p = job.p;
  LinearTile t;
  t.weight = job.weight_at(out, k);
  t.count = job.count(k);
  t.outs = std::min(kPanel, p.out - out);
  t.y_stride = p.out;
  t.first = k == 0;
  const bool last = k + kChunk >= p.in;
  t.scales = p.scales && last ? p.scales + out : nullptr;
  t.bias = p.bias && last ? p.bias + out : nullptr;
  const int blocks = job.blocks();
  const AheadPlan plan = ahead_plan(p.rows, p.dtype);
  const int lines =
      ahead ? int(kGroup * kPanel * step_of(p.dtype) * size_of(p.dtype) / plan.every) : 0;
  const std::int64_t groups = steps_of(t.count, p.dtype) / kGroup;
  t.ahead = ahead;
  for (int block = 0; block < blocks; ++block) {
    const int row = job.block_begin(block);
    t.x = x.values.data() + job.chunk_row(row, k) * job.chunk_row_bytes();
    t.x_scales = x.scales.data() + job.chunk_row(row, k);
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

// Few rows: weights in the order they lie in memory, fetched ahead. Many: chunk by chunk, so that x
// stays near.
void outputs(const Job& job, const PackedX& x, int out, int out_end, const Ahead& ahead) {
  const int in = job.p.in;
  if (std::ssize(x.values) <= kNear) {
    for (int o = out; o < out_end; o += kPanel)
      for (int k = 0; k < in; k += kChunk) panel(job, x, o, k, ahead.from(job.weight_at(o, k)));
  } else {
    for (int k = 0; k < in; k += kChunk)
      for (int o = out; o < out_end; o += kPanel) panel(job, x, o, k, nullptr);
  }
}

}  // namespace

void linear(const Linear& p, ThreadPool& pool, const LinearTiles& tiles) {
  if (p.rows <= 0 || p.out <= 0) return;
  static std::atomic<std::uint64_t> calls{0};
  const Job job{p, tiles, ++calls};
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

}  // namespace dex::cpu
