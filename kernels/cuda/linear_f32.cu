// Weights of f32 by fmaf, for proofs and for small models. Block of 4 warps, 2 outputs each; chunks
// of `in` pass through shared memory once for all rows. Lane l sums elements l, l + 32, ... of a
// chunk, a fixed tree adds the lanes, chunks add in order.
#include "kernels/cuda/linear_plan.h"
#include "kernels/cuda/reduce.h"

namespace dex::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarpOuts = 2;
constexpr int kOuts = kThreads / 32 * kWarpOuts;
constexpr int kChunk = 512;
constexpr int kRows = 8;        // whose sums a lane holds at a time
constexpr int kMostRows = 128;  // of a block: their totals stay in shared memory

struct Buffers {
  float weights[2][kOuts][kChunk];
  float totals[kMostRows][kOuts];  // each written and read by one lane only
};

struct F32Job {
  const float* x = nullptr;
  const float* weight = nullptr;
  LinearFinish finish;
  int rows = 0, in = 0, out = 0;
  bool aligned = false;
};

__device__ void load_chunk(const F32Job& job, float (&to)[kOuts][kChunk], int first_out,
                           int begin) {
  for (int i = gpu::thread(); i < kOuts * kChunk / 4; i += kThreads) {
    const int o = i / (kChunk / 4), at = i % (kChunk / 4) * 4, k = begin + at;
    const float* row = job.weight + std::int64_t(min(first_out + o, job.out - 1)) * job.in;
    if (job.aligned) {
      gpu::cp_async16(&to[o][at], row + k, k < job.in);
    } else {
      for (int j = 0; j < 4; ++j) to[o][at + j] = k + j < job.in ? row[k + j] : 0.0f;
    }
  }
}

// A warp's outputs for kRows rows over one chunk. Elements past the end of x are not read.
__device__ void add_chunk(const F32Job& job, const float (&weights)[kOuts][kChunk],
                          float (&totals)[kMostRows][kOuts], int first_row, int row, int row_end,
                          int begin) {
  const int lane = gpu::lane(), first = gpu::warp() * kWarpOuts;
  float sums[kRows][kWarpOuts] = {};
  for (int at = lane; at < kChunk && begin + at < job.in; at += 32) {
    UNROLL for (int r = 0; r < kRows; ++r) {
      const float x = job.x[std::int64_t(min(row + r, row_end - 1)) * job.in + begin + at];
      UNROLL for (int o = 0; o < kWarpOuts; ++o) sums[r][o] =
          fmaf(x, weights[first + o][at], sums[r][o]);
    }
  }
  UNROLL for (int r = 0; r < kRows; ++r) {
    UNROLL for (int o = 0; o < kWarpOuts; ++o) {
      const float sum = over_warp(sums[r][o], Add());
      if (lane != r * kWarpOuts + o || row + r >= row_end) continue;
      float& total = totals[row + r - first_row][first + o];
      total = begin == 0 ? sum : total + sum;
      if (begin + kChunk >= job.in && gpu::block_y() * kOuts + first + o < job.out)
        job.finish(row + r, gpu::block_y() * kOuts + first + o, total);
    }
  }
}

__global__ void linear_f32_kernel(F32Job job) {
  DYN_SHARED(Buffers, buffers);
  const int first_row = gpu::block() * kMostRows, row_end = min(first_row + kMostRows, job.rows);
  const int first_out = gpu::block_y() * kOuts, chunks = ceil_div(job.in, kChunk);
  load_chunk(job, buffers->weights[0], first_out, 0);
  gpu::cp_async_commit();
  for (int c = 0; c < chunks; ++c) {
    gpu::cp_async_wait<0>();
    __syncthreads();  // all have this chunk, and none still reads the other buffer
    if (c + 1 < chunks) load_chunk(job, buffers->weights[(c + 1) % 2], first_out, (c + 1) * kChunk);
    gpu::cp_async_commit();
    for (int row = first_row; row < row_end; row += kRows)
      add_chunk(job, buffers->weights[c % 2], buffers->totals, first_row, row, row_end, c * kChunk);
  }
}

}  // namespace

int linear_f32(const Linear& p, const LinearFinish& finish, Stream stream) {
  const F32Job job{
      .x = p.x,
      .weight = static_cast<const float*>(p.weight),
      .finish = finish,
      .rows = p.rows,
      .in = p.in,
      .out = p.out,
      .aligned = p.in % 4 == 0 && reinterpret_cast<std::uintptr_t>(p.weight) % 16 == 0};
  const dim3 grid(unsigned(ceil_div(p.rows, kMostRows)), unsigned(ceil_div(p.out, kOuts)));
  return gpu::launch(linear_f32_kernel, grid, kThreads, sizeof(Buffers), stream, job);
}

}  // namespace dex::cuda
