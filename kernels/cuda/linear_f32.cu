// Weights of f32 by fmaf, for proofs and for small models. Block of 4 warps, 2 outputs each; chunks
// of `in` pass through shared memory once for all rows. Lane l sums elements l, l + 32, ... of a
// chunk, a fixed tree adds the lanes; then as input_parts.h says.
#include "kernels/cuda/linear_plan.h"
#include "kernels/cuda/reduce.h"

namespace dex::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarpOuts = 2;
constexpr int kOuts = kThreads / 32 * kWarpOuts;
constexpr int kChunk = kInputChunk;
constexpr int kLevels = 4;      // of the tree: sums that wait for their right neighbour
constexpr int kRows = 8;        // whose sums a lane holds at a time
constexpr int kMostRows = 128;  // of a block: their sums stay in shared memory

struct Buffers {
  float weights[2][kOuts][kChunk];
  float kept[kMostRows][kOuts][kLevels];  // each written and read by one lane only
};

struct F32Job {
  const float* x = nullptr;
  const float* weight = nullptr;
  LinearFinish finish;
  int rows = 0, columns = 0, out = 0;
  InputParts parts;
  PartShare share;
  bool aligned = false;
};

// A chunk of a part; an empty part has one without elements.
struct Chunk {
  int part, at, size;  // of the part

  __device__ Chunk(const F32Job& job, int part) : part(part), at(0), size(job.parts.size(part)) {}
  __device__ Chunk next(const F32Job& job) const {
    if (last()) return {job, part + 1};
    Chunk chunk = *this;
    chunk.at += kChunk;
    return chunk;
  }
  __device__ bool last() const { return at + kChunk >= size; }
  __device__ bool ends_sum(const F32Job& job) const { return last() && part + 1 == job.share.last; }
  __device__ int column(const F32Job& job) const {
    return job.parts.begin(part) - job.parts.begin(job.share.first) + at;
  }
  __device__ int count() const { return min(kChunk, size - at); }
};

__device__ void load_chunk(const F32Job& job, float (&to)[kOuts][kChunk], int first_out,
                           const Chunk& chunk) {
  const int begin = chunk.column(job), end = begin + chunk.count();
  for (int i = gpu::thread(); i < kOuts * kChunk / 4; i += kThreads) {
    const int o = i / (kChunk / 4), at = i % (kChunk / 4) * 4, k = begin + at;
    const float* row = job.weight + std::int64_t(min(first_out + o, job.out - 1)) * job.columns;
    if (job.aligned) {
      gpu::cp_async16(&to[o][at], row + k, k < end);
    } else {
      for (int j = 0; j < 4; ++j) to[o][at + j] = k + j < end ? row[k + j] : 0.0f;
    }
  }
}

// A chunk's sum joins those before it.
__device__ void add_sum(const F32Job& job, float (&kept)[kLevels], const Chunk& chunk, float sum,
                        int row, int out) {
  const int level = merges_after(chunk.part - job.share.first);
  if (chunk.at > 0) sum = kept[level] + sum;
  if (chunk.last())
    for (int l = 0; l < level; ++l) sum = kept[l] + sum;
  if (!chunk.ends_sum(job))
    kept[level] = sum;
  else if (out < job.out)
    job.finish(row, out, sum);
}

// A warp's outputs for kRows rows over one chunk.
__device__ void add_chunk(const F32Job& job, const float (&weights)[kOuts][kChunk],
                          float (&kept)[kMostRows][kOuts][kLevels], int first_row, int row,
                          int row_end, const Chunk& chunk) {
  const int lane = gpu::lane(), first = gpu::warp() * kWarpOuts, begin = chunk.column(job);
  float sums[kRows][kWarpOuts] = {};
  for (int at = lane; at < chunk.count(); at += 32) {
    UNROLL for (int r = 0; r < kRows; ++r) {
      const float x = job.x[std::int64_t(min(row + r, row_end - 1)) * job.columns + begin + at];
      UNROLL for (int o = 0; o < kWarpOuts; ++o) sums[r][o] =
          fmaf(x, weights[first + o][at], sums[r][o]);
    }
  }
  UNROLL for (int r = 0; r < kRows; ++r) {
    UNROLL for (int o = 0; o < kWarpOuts; ++o) {
      const float sum = chunk.count() > 0 ? over_warp(sums[r][o], Add()) : -0.0f;
      if (lane == r * kWarpOuts + o && row + r < row_end)
        add_sum(job, kept[row + r - first_row][first + o], chunk, sum, row + r,
                gpu::block_y() * kOuts + first + o);
    }
  }
}

__global__ void linear_f32_kernel(F32Job job) {
  DYN_SHARED(Buffers, buffers);
  const int first_row = gpu::block() * kMostRows, row_end = min(first_row + kMostRows, job.rows);
  const int first_out = gpu::block_y() * kOuts;
  Chunk chunk(job, job.share.first);
  load_chunk(job, buffers->weights[0], first_out, chunk);
  gpu::cp_async_commit();
  for (int buffer = 0; chunk.part < job.share.last; buffer = 1 - buffer) {
    gpu::cp_async_wait<0>();
    __syncthreads();  // all have this chunk, and none still reads the other buffer
    const Chunk next = chunk.next(job);
    if (next.part < job.share.last) load_chunk(job, buffers->weights[1 - buffer], first_out, next);
    gpu::cp_async_commit();
    for (int row = first_row; row < row_end; row += kRows)
      add_chunk(job, buffers->weights[buffer], buffers->kept, first_row, row, row_end, chunk);
    chunk = next;
  }
}

}  // namespace

int linear_f32(const Linear& p, const LinearFinish& finish, Stream stream) {
  const F32Job job{.x = p.x,
                   .weight = static_cast<const float*>(p.weight),
                   .finish = finish,
                   .rows = p.rows,
                   .columns = p.columns(),
                   .out = p.out,
                   .parts = p.parts(),
                   .share = p.share,
                   .aligned = aligned_parts(p)};
  const dim3 grid(unsigned(ceil_div(p.rows, kMostRows)), unsigned(ceil_div(p.out, kOuts)));
  return gpu::launch(linear_f32_kernel, grid, kThreads, sizeof(Buffers), stream, job);
}

}  // namespace dex::cuda
