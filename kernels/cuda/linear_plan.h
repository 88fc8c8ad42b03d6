// How cuda::linear cuts its work, in numbers that host and device share.
//
// y[row][out] is a sum over chunks of `in`, each summed from zero and then added in order. Where
// chunks begin depends on `in` alone; which block takes which chunks, and how many rows share a
// block, is free and never shows in a bit.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/cpu/quanta.h"
#include "kernels/cuda/gpu.h"
#include "kernels/linear.h"

namespace dex::cuda {

constexpr int kTileOuts = 64;     // outputs of a block: 4 warps x the 16 rows of an mma
constexpr int kTileBytes = 128;   // of a weight row that a stage of the ring holds
constexpr int kInputAlign = 128;  // bytes a prepared row of x is padded to
// 4 on each of 132 multiprocessors: what it takes to keep HBM busy
constexpr int kBlocksAtOnce = 528;

// bf16: a quarter of `in`, so that partial sums are few, yet enough blocks share a narrow output.
// i8: as on the CPU.
__host__ __device__ constexpr int chunk_of(int in, Dtype dtype) {
  if (dtype == Dtype::i8) return kQuantaChunk;
  const int quarter = round_up(ceil_div(in, 4), 128);
  return quarter < 1024 ? 1024 : quarter > 4096 ? 4096 : quarter;
}

// What becomes of a finished sum.
struct LinearFinish {
  const float* scales = nullptr;  // (out), or null
  const float* bias = nullptr;    // (out), or null
  float* y = nullptr;             // (rows, out)
  int out = 0;
  bool add = false;  // y += scale * value
  float scale = 1;

  __device__ void operator()(int row, int o, float value) const {
    if (scales) value *= scales[o];
    if (bias) value += bias[o];
    float& place = y[std::int64_t(row) * out + o];
    place = add ? fmaf(scale, value, place) : value;
  }
};

struct LinearPlan {
  int rows = 0, in = 0, out = 0;
  int chunk = 0, chunks = 0;             // elements of `in`
  int chunks_per_block = 0, groups = 0;  // of blocks, along `in`
  int tile_rows = 0, row_tiles = 0, out_tiles = 0;
  int planes = 1;  // of prepared x: 1 of bf16, or 2 of bytes
  int pitch = 0;   // bytes of a prepared row of x
  // in the workspace; prepared x comes first
  std::size_t scales_at = 0, partials_at = 0, arrived_at = 0, bytes = 0;

  __host__ __device__ std::int64_t partial(int c, int row, int o) const {
    return (std::int64_t(c) * rows + row) * out + o;
  }
  __host__ __device__ int counters() const { return groups > 1 ? row_tiles * out_tiles : 0; }
};

// For weights of bf16 or i8.
inline LinearPlan plan_of(const Linear& p) {
  LinearPlan plan{.rows = p.rows, .in = p.in, .out = p.out};
  const bool bytes = p.dtype == Dtype::i8;
  const int most = bytes ? 64 : 128;  // two planes of sums take twice the registers
  plan.tile_rows = 8;
  while (plan.tile_rows < p.rows && plan.tile_rows < most) plan.tile_rows *= 2;
  plan.row_tiles = ceil_div(p.rows, plan.tile_rows);
  plan.out_tiles = ceil_div(p.out, kTileOuts);
  plan.chunk = chunk_of(p.in, p.dtype);
  plan.chunks = ceil_div(p.in, plan.chunk);
  // Partial sums are written and read once: no more than a quarter of the weights' bytes.
  const bool cheap =
      std::int64_t{p.rows} * 2 * 4 * 4 <= std::int64_t{plan.chunk} * size_of(p.dtype);
  const int groups = cheap ? std::clamp(kBlocksAtOnce / plan.out_tiles, 1, plan.chunks) : 1;
  plan.chunks_per_block = ceil_div(plan.chunks, groups);
  plan.groups = ceil_div(plan.chunks, plan.chunks_per_block);
  plan.planes = bytes ? 2 : 1;
  plan.pitch = round_up(p.in * (bytes ? 1 : 2), kInputAlign);

  const auto aligned = [](std::size_t size) { return round_up(size, 128); };
  const std::size_t rows = std::size_t(p.rows), chunks = std::size_t(plan.chunks);
  plan.scales_at = aligned(std::size_t(plan.planes * plan.pitch) * rows);
  plan.partials_at = plan.scales_at + (bytes ? aligned(rows * chunks * 4) : 0);
  plan.arrived_at =
      plan.partials_at + (plan.groups > 1 ? aligned(rows * chunks * std::size_t(p.out) * 4) : 0);
  plan.bytes = plan.arrived_at + aligned(std::size_t(plan.counters()) * 4);
  return plan;
}

// Prepares x in the workspace and zeroes the counters.
int prepare_input(const LinearPlan& plan, const float* x, unsigned char* workspace, Stream stream);
// Weights of f32.
int linear_f32(const Linear& p, const LinearFinish& finish, Stream stream);

}  // namespace dex::cuda
