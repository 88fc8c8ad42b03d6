#include "kernels/linear.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/linear_tiles.h"

namespace dex::cpu {
namespace {

constexpr std::ptrdiff_t kNear = 512 << 10;  // packed x up to this size stays in the second cache as it is
// One call. Packed x: chunk after chunk, in each the blocks of rows one after the other, in each step after step.
struct Job {
  const Linear& p;
  const LinearTiles& tiles;
  char* x;
  float* x_scales;  // (chunks, rows)

  int count(int k) const { return std::min(kChunk, p.in - k); }
  std::int64_t steps(int count) const { return steps_of(count, p.dtype); }
  // Blocks of nearly equal size.
  int blocks() const { return (p.rows + tiles.max_rows - 1) / tiles.max_rows; }
  int block_begin(int block) const { return static_cast<int>(std::int64_t{p.rows} * block / blocks()); }

  char* x_at(int row, int k) const { return x + (steps(k) * p.rows + steps(count(k)) * row) * tiles.unit; }
  float* x_scale(int row, int k) const { return x_scales + static_cast<std::ptrdiff_t>(k / kChunk) * p.rows + row; }
  const char* weight_at(int out, int k) const {
    return static_cast<const char*>(p.weight) + packed_index(out, k, p.in, p.dtype) * size_of(p.dtype);
  }
  std::ptrdiff_t x_bytes() const { return steps(p.in) * p.rows * tiles.unit; }
};

void pack_block(const Job& job, int block) {
  const int begin = job.block_begin(block), end = job.block_begin(block + 1);
  for (int k = 0; k < job.p.in; k += kChunk)
    for (int row = begin; row < end; ++row)
      *job.x_scale(row, k) = job.tiles.pack(job.p.x + static_cast<std::ptrdiff_t>(row) * job.p.in + k,
                                            job.x_at(begin, k) + (row - begin) * job.tiles.unit, job.count(k), end - begin);
}

// All rows x one panel on the chunk at k; the weights stay near between blocks of rows.
void panel(const Job& job, int out, int k, const char* ahead) {
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
  const int step_lines = kPanel * step_of(p.dtype) * size_of(p.dtype) / 64;
  t.ahead_lines = ahead ? (step_lines + job.blocks() - 1) / job.blocks() : 0;
  t.ahead = ahead;
  for (int block = 0; block < job.blocks(); ++block) {
    const int row = job.block_begin(block);
    t.x = job.x_at(row, k);
    t.x_scales = job.x_scale(row, k);
    t.y = p.y + static_cast<std::ptrdiff_t>(row) * p.out + out;
    job.tiles.tile[job.block_begin(block + 1) - row](t);
    t.ahead += t.ahead_lines * 64 * job.steps(t.count);
    if (block + 1 >= step_lines) t.ahead_lines = 0;
  }
}

// Where a thread's share of the weights ends, and where its share of the next linear's begins: memory is never left idle
// between two operators.
struct Ahead {
  const char *end, *next;
  std::ptrdiff_t distance;

  const char* from(const char* at) const {
    at += distance;
    return at < end ? at : next ? next + (at - end) : nullptr;
  }
};

// Few rows: weights in the order they lie in memory, fetched ahead. Many: chunk by chunk, so that x stays near.
void outputs(const Job& job, int out, int out_end, const Ahead& ahead) {
  const int in = job.p.in;
  if (job.x_bytes() <= kNear) {
    for (int o = out; o < out_end; o += kPanel)
      for (int k = 0; k < in; k += kChunk) panel(job, o, k, ahead.from(job.weight_at(o, k)));
  } else {
    for (int k = 0; k < in; k += kChunk)
      for (int o = out; o < out_end; o += kPanel) panel(job, o, k, nullptr);
  }
}

}  // namespace

void linear(const Linear& p, Workers& workers, const LinearTiles& tiles) {
  if (p.rows <= 0 || p.out <= 0) return;
  thread_local std::vector<char> x;
  thread_local std::vector<float> x_scales;
  Job job{p, tiles, nullptr, nullptr};
  x.resize(static_cast<std::size_t>(job.x_bytes()));
  x_scales.resize(static_cast<std::size_t>((p.in + kChunk - 1) / kChunk) * static_cast<std::size_t>(p.rows));
  job.x = x.data();
  job.x_scales = x_scales.data();
  if (job.blocks() == 1) pack_block(job, 0);
  else workers.run(job.blocks(), [&](int block) { pack_block(job, block); });

  const int threads = workers.threads(), panels = static_cast<int>(panels_of(p.out));
  const int part = std::clamp(panels / (4 * threads), 1, 4), parts = (panels + part - 1) / part;
  workers.run(parts, [&](int i) {
    int share = 0;
    while (i >= workers.share_begin(parts, share + 1)) ++share;
    const int share_end = std::min(panels, workers.share_begin(parts, share + 1) * part) * kPanel;
    const Ahead ahead{job.weight_at(share_end, 0),
                      p.next ? static_cast<const char*>(p.next) + p.next_bytes * share / threads : nullptr,
                      ahead_of(p.rows)};
    outputs(job, i * part * kPanel, std::min(p.out, (i + 1) * part * kPanel), ahead);
  });
}

void linear(const Linear& p, Workers& workers) {
  const LinearTiles* dot = dot_tiles(p.dtype);
  linear(p, workers, dot ? *dot : vector_tiles(p.dtype));
}

}  // namespace dex::cpu
