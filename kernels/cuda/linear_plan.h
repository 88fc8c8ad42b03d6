// How cuda::linear cuts its work, in numbers that host and device share.
//
// y[row][out] is the tree of input_parts.h. Which block takes which subtree, and how many rows
// share a block, is free and never shows in a bit.
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
constexpr int kInputAlign = 128;  // bytes a part of a prepared row of x is padded to
// 4 on each of 132 multiprocessors: what it takes to keep HBM busy
constexpr int kBlocksAtOnce = 528;

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

// The sums of parts 0, 1, ... of a subtree, or of its equal subtrees, become that of all: the last
// push returns it.
struct TreeSum {
  float waiting[3] = {};  // for their right neighbours, by level

  __device__ float push(int number, float sum) {
    if (!(number & 1)) return waiting[0] = sum;
    sum = waiting[0] + sum;
    if (!(number & 2)) return waiting[1] = sum;
    sum = waiting[1] + sum;
    if (!(number & 4)) return waiting[2] = sum;
    return waiting[2] + sum;
  }
};

struct LinearPlan {
  int rows = 0, out = 0;
  int parts = 0;                    // of the share: part 0 is its first
  int begin[kInputParts + 1] = {};  // of each part, in columns of x and the weight
  int places = 0;                   // of parts that are not empty in a prepared row of x,
  int place[kInputParts] = {};      // a part's
  int part_at[kInputParts] = {};    // a place's
  int groups = 0, group_parts = 0;  // of blocks, along `in`; a group has a subtree
  int tile_rows = 0, row_tiles = 0, out_tiles = 0;
  int planes = 1;       // of prepared x: 1 of bf16, or 2 of bytes
  int part_pitch = 0;   // bytes of a part in a prepared row of x
  int part_chunks = 0;  // of the longest part
  // in the workspace; prepared x comes first
  std::size_t scales_at = 0, partials_at = 0, arrived_at = 0, bytes = 0;

  __host__ __device__ int columns() const { return begin[parts]; }
  __host__ __device__ int size(int part) const { return begin[part + 1] - begin[part]; }
  __host__ __device__ int pitch() const { return places * part_pitch; }
  __host__ __device__ std::int64_t scale(int row, int part, int chunk) const {
    return (std::int64_t(row) * places + place[part]) * part_chunks + chunk;
  }
  __host__ __device__ std::int64_t partial(int group, int row, int o) const {
    return (std::int64_t(group) * rows + row) * out + o;
  }
  __host__ __device__ int counters() const { return groups > 1 ? row_tiles * out_tiles : 0; }
};

// For weights of bf16 or i8.
inline LinearPlan plan_of(const Linear& p) {
  LinearPlan plan{.rows = p.rows, .out = p.out, .parts = p.share.count()};
  int longest = 0;
  for (int part = 0; part < plan.parts; ++part) {
    const int size = p.parts().size(p.share.first + part);
    plan.begin[part + 1] = plan.begin[part] + size;
    longest = std::max(longest, size);
    if (size == 0) continue;
    plan.part_at[plan.places] = part;
    plan.place[part] = plan.places++;
  }
  const bool bytes = p.dtype == Dtype::i8;
  const int most = bytes ? 64 : 128;  // two planes of sums take twice the registers
  plan.tile_rows = 8;
  while (plan.tile_rows < p.rows && plan.tile_rows < most) plan.tile_rows *= 2;
  plan.row_tiles = ceil_div(p.rows, plan.tile_rows);
  plan.out_tiles = ceil_div(p.out, kTileOuts);
  // Partial sums are written and read once: no more than a quarter of the weights' bytes.
  const auto cheap = [&](int groups) {
    return std::int64_t{p.rows} * groups * 2 * 4 * 4 <=
           std::int64_t{plan.columns()} * size_of(p.dtype);
  };
  plan.groups = 1;
  while (plan.groups < plan.parts && 2 * plan.groups * plan.out_tiles <= kBlocksAtOnce &&
         cheap(2 * plan.groups))
    plan.groups *= 2;
  plan.group_parts = plan.parts / plan.groups;
  plan.planes = bytes ? 2 : 1;
  plan.part_chunks = ceil_div(longest, kInputChunk);
  plan.part_pitch = round_up(longest * size_of(p.dtype), kInputAlign);

  const auto aligned = [](std::size_t size) { return round_up(size, 128); };
  const std::size_t rows = std::size_t(p.rows);
  plan.scales_at = aligned(std::size_t(plan.planes * plan.pitch()) * rows);
  plan.partials_at = plan.scales_at +
                     (bytes ? aligned(rows * std::size_t(plan.places * plan.part_chunks) * 4) : 0);
  plan.arrived_at =
      plan.partials_at +
      (plan.groups > 1 ? aligned(rows * std::size_t(plan.groups) * std::size_t(p.out) * 4) : 0);
  plan.bytes = plan.arrived_at + aligned(std::size_t(plan.counters()) * 4);
  return plan;
}

// Whether parts of `p` begin, and rows of its weight lie, at multiples of 16 bytes.
inline bool aligned_parts(const Linear& p) {
  const auto whole = [&](int elements) { return elements * size_of(p.dtype) % 16 == 0; };
  return whole(p.unit) && whole(p.columns()) &&
         reinterpret_cast<std::uintptr_t>(p.weight) % 16 == 0;
}

// Prepares x in the workspace and zeroes the counters.
int prepare_input(const LinearPlan& plan, const float* x, unsigned char* workspace, Stream stream);
// Weights of f32.
int linear_f32(const Linear& p, const LinearFinish& finish, Stream stream);

}  // namespace dex::cuda
