#include "kernels/linear.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/linear_tiles.h"

namespace dex::cpu {
namespace {

constexpr int kRowTile = 128;                     // rows of x that pass while a part's weights are near
constexpr std::ptrdiff_t kNear = 512 << 10;       // packed x up to this size stays in the second cache as it is
constexpr std::ptrdiff_t kAhead = 32 << 10;       // how far before their use weights are fetched into the second cache

// Packed x: chunk after chunk, in each the rows one after the other. (Rows a power of two apart would fall into the same few
// sets of the cache.)
struct Job {
  const Linear& p;
  const LinearTiles& tiles;
  char* x;
  float* x_scales;  // (chunks, rows)

  int count(int k) const { return std::min(kChunk, p.in - k); }
  std::ptrdiff_t stride(int k) const { return (count(k) + kPad - 1) / kPad * kPad; }
  char* at(int row, int k) const {
    return x + (static_cast<std::ptrdiff_t>(k) * p.rows + row * stride(k)) * tiles.packed_size;
  }
  float* x_scale(int row, int k) const { return x_scales + static_cast<std::ptrdiff_t>(k / kChunk) * p.rows + row; }
};

std::ptrdiff_t packed_bytes(const Linear& p, const LinearTiles& tiles, int rows) {
  return static_cast<std::ptrdiff_t>(p.in + kPad - 1) / kPad * kPad * rows * tiles.packed_size;
}

void pack(const Job& job) {
  for (int k = 0; k < job.p.in; k += kChunk)
    for (int row = 0; row < job.p.rows; ++row)
      *job.x_scale(row, k) =
          job.tiles.pack(job.p.x + static_cast<std::ptrdiff_t>(row) * job.p.in + k, job.at(row, k), job.count(k));
}

const char* weight_at(const Linear& p, int out, int k) {
  return static_cast<const char*>(p.weight) + (static_cast<std::ptrdiff_t>(out) * p.in + k) * size_of(p.dtype);
}

// Blocks of nearly equal size, the larger first.
int block_rows(int rows, int max_rows) {
  const int blocks = (rows + max_rows - 1) / max_rows;
  return (rows + blocks - 1) / blocks;
}

// Rows [row, row_end) x outputs from `out` on x the chunk at k; the weights stay in the first cache between row blocks.
void tile(const Job& job, int row, int row_end, int out, int out_end, int k, const char* ahead) {
  const Linear& p = job.p;
  LinearTile t;
  t.x_stride = job.stride(k);
  t.weight = weight_at(p, out, k);
  t.weight_stride = p.in;
  t.ahead = ahead;
  const int blocks = (row_end - row + job.tiles.max_rows - 1) / job.tiles.max_rows;
  t.count = job.count(k);
  const int step_lines = kOuts * job.tiles.step * size_of(p.dtype) / 64;
  t.ahead_lines = ahead ? (step_lines + blocks - 1) / blocks : 0;
  t.outs = std::min(kOuts, out_end - out);
  t.y_stride = p.out;
  const bool last = k + kChunk >= p.in;
  t.scales = p.scales && last ? p.scales + out : nullptr;
  t.bias = p.bias && last ? p.bias + out : nullptr;
  t.first = k == 0;
  while (row < row_end) {
    const int rows = block_rows(row_end - row, job.tiles.max_rows);
    t.x = job.at(row, k);
    t.x_scales = job.x_scale(row, k);
    t.y = p.y + static_cast<std::ptrdiff_t>(row) * p.out + out;
    job.tiles.tile[rows](t);
    row += rows;
    t.ahead += static_cast<std::ptrdiff_t>(t.ahead_lines) * 64 * (t.count / job.tiles.step);
  }
}

// Where a thread's share of the weights ends, and where its share of the next linear's begins: memory is never left idle
// between two operators.
struct Ahead {
  const char *end, *next;

  const char* from(const char* at) const {
    at += kAhead;
    return at < end ? at : next ? next + (at - end) : nullptr;
  }
};

// Few rows: weights in the order they lie in memory, fetched ahead. Many: chunk by chunk, so that x stays near.
void outputs(const Job& job, int out, int out_end, int row, int row_end, const Ahead& ahead) {
  const Linear& p = job.p;
  if (packed_bytes(p, job.tiles, row_end - row) <= kNear) {
    for (int o = out; o < out_end; o += kOuts)
      for (int k = 0; k < p.in; k += kChunk) tile(job, row, row_end, o, out_end, k, ahead.from(weight_at(p, o, kOuts * k)));
  } else {
    for (int k = 0; k < p.in; k += kChunk)
      for (int o = out; o < out_end; o += kOuts) tile(job, row, row_end, o, out_end, k, nullptr);
  }
}

}  // namespace

void linear(const Linear& p, Workers& workers, const LinearTiles& tiles) {
  if (p.rows <= 0 || p.out <= 0) return;
  thread_local std::vector<char> scratch;
  thread_local std::vector<float> x_scales;
  x_scales.resize(static_cast<std::size_t>((p.in + kChunk - 1) / kChunk) * static_cast<std::size_t>(p.rows));
  scratch.resize(packed_bytes(p, tiles, p.rows) + 64);
  const Job job{p, tiles, scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64), x_scales.data()};
  pack(job);
  const int threads = workers.threads();
  const int part = std::clamp(p.out / (4 * threads) / kOuts * kOuts, 2 * kOuts, 64), parts = (p.out + part - 1) / part;
  workers.run(parts, [&](int i) {
    int share = 0;
    while (i >= workers.share_begin(parts, share + 1)) ++share;
    const Ahead ahead{weight_at(p, std::min(p.out, workers.share_begin(parts, share + 1) * part), 0),
                      p.next ? static_cast<const char*>(p.next) + p.next_bytes * share / threads : nullptr};
    for (int row = 0; row < p.rows; row += kRowTile)
      outputs(job, i * part, std::min(p.out, (i + 1) * part), row, std::min(p.rows, row + kRowTile), ahead);
  });
}

void linear(const Linear& p, Workers& workers) {
  const LinearTiles* dot = dot_tiles(p.dtype);
  linear(p, workers, dot ? *dot : vector_tiles(p.dtype));
}

}  // namespace dex::cpu
