// Skinny GEMM: weights of bf16 or i8 pass through tensor cores once for up to 128 rows (i8: 64).
//
// Block (row tile, output tile, subtree of parts) of 4 warps; a warp owns 16 outputs and every row
// of the tile. The weights are the mma's A operand (its 16 rows are outputs), x its B operand (its
// 8 columns are rows), so 1 row wastes 7/8 of an mma, not
// 15/16. An element of D is a sum of its own row of A and column of B: which rows share a tile
// cannot show. Per stage of the ring 64 outputs x 128 bytes = 8 KB of weights; 5 stages under way
// in each of 4 blocks are 160 KB a multiprocessor, where 3.35 TB/s x 1 us / 132 = 25 KB would hide
// the latency. Weight bytes bound the time up to about 64 rows (bf16: 1 flop a byte and row, so 128
// rows ask for 430 TFLOP/s at 3.35 TB/s); beside them a block reads x from the second cache, rows /
// 64 of its weights' bytes.
#include "kernels/cuda/linear_plan.h"

namespace dex::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWeightBytes = kTileOuts * kTileBytes;

struct LinearJob {
  LinearPlan plan;
  const unsigned char* weight = nullptr;
  const unsigned char* x = nullptr;  // prepared
  const float* x_scales = nullptr;   // LinearPlan::scale, i8 only
  float* partials = nullptr;         // (groups, rows, out) when groups > 1
  unsigned* arrived = nullptr;       // (output tiles, row tiles) blocks that have written theirs
  LinearFinish finish;
  bool aligned = false;  // aligned_parts
};

// Byte offset of a 16-byte unit in a tile of 128-byte rows. Eight rows' units of one number lie in
// different banks.
__host__ __device__ constexpr int tile_offset(int row, int unit) {
  return row * kTileBytes + ((unit ^ (row & 7)) << 4);
}

__device__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  gpu::mma_16x8x16(d, a, b);
}
__device__ void multiply(int (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  gpu::mma_s8_16x8x32(d, a, b);
}

// How a kind of weight is summed: in kPlanes of x, and by itself (`alone`) where x is kept less a
// constant.
struct Bf16 {
  using Weight = gpu::bf16;
  using Sum = float;
  static constexpr int kPlanes = 1;
  __device__ static float value(const float (&planes)[1], float, float) { return planes[0]; }
};
struct I8 {
  using Weight = signed char;
  using Sum = int;
  static constexpr int kPlanes = 2;
  // Exact: no sum over a chunk passes 2^31.
  __device__ static float value(const int (&planes)[2], int alone, float x_scale) {
    return float(256 * planes[0] + (planes[1] + 128 * alone)) * x_scale;
  }
};

template <class Kind, int kTiles>
struct Shape {
  // elements of `in` a stage
  static constexpr int kStep = kTileBytes / int(sizeof(typename Kind::Weight));
  static constexpr int kXRows = Kind::kPlanes * kTiles * 8;
  static constexpr int kStageBytes = kWeightBytes + kXRows * kTileBytes;
  static constexpr int kStages = kXRows <= 16 ? 6 : 4;
};

// The stages of a block's parts, one after the other; none reaches into the next part.
template <int kStep>
struct Stages {
  const LinearPlan& plan;
  int part, end_part, size = 0;
  int at = 0;  // of the part's elements

  __device__ Stages(const LinearPlan& plan, int first, int end)
      : plan(plan), part(first), end_part(end) {
    pass_empty();
  }
  __device__ bool done() const { return part == end_part; }
  __device__ void next() {
    at += kStep;
    if (at < size) return;
    at = 0, ++part;
    pass_empty();
  }

 private:
  __device__ void pass_empty() {
    for (; part < end_part; ++part) {
      size = plan.size(part);
      if (size > 0) return;
    }
  }
};

// Sixteen bytes of a weight row from column k on, zeros past `end`.
template <class Weight>
__device__ void copy_weights(const LinearJob& job, unsigned char* to, int out, int k, int end) {
  constexpr int kEach = 16 / sizeof(Weight);
  const auto* row =
      reinterpret_cast<const Weight*>(job.weight) + std::int64_t(out) * job.plan.columns();
  if (job.aligned) {
    gpu::cp_async16(to, row + k, k < end);
  } else {
    for (int i = 0; i < kEach; ++i)
      reinterpret_cast<Weight*>(to)[i] = k + i < end ? row[k + i] : Weight{};
  }
}

// Rows and outputs past the end repeat the last: what they give is never written.
template <class Kind, int kTiles>
__device__ void load_stage(const LinearJob& job, unsigned char* stage, int first_row, int first_out,
                           const Stages<Shape<Kind, kTiles>::kStep>& from) {
  using Weight = typename Kind::Weight;
  constexpr int kUnits = kTileBytes / 16, kEach = 16 / int(sizeof(Weight));
  const LinearPlan& plan = job.plan;
  const int column = plan.begin[from.part];
  for (int i = gpu::thread(); i < kTileOuts * kUnits; i += kThreads) {
    const int row = i / kUnits, unit = i % kUnits;
    copy_weights<Weight>(job, stage + tile_offset(row, unit), min(first_out + row, plan.out - 1),
                         column + from.at + unit * kEach, column + from.size);
  }
  unsigned char* x_stage = stage + kWeightBytes;
  const int x_at = plan.place[from.part] * plan.part_pitch + from.at * int(sizeof(Weight));
  for (int i = gpu::thread(); i < Shape<Kind, kTiles>::kXRows * kUnits; i += kThreads) {
    const int tile_row = i / kUnits, unit = i % kUnits;
    const int plane = tile_row / (kTiles * 8),
              row = min(first_row + tile_row % (kTiles * 8), plan.rows - 1);
    const unsigned char* x = job.x + (std::int64_t(plane) * plan.rows + row) * plan.pitch();
    gpu::cp_async16(x_stage + tile_offset(tile_row, unit), x + x_at + unit * 16);
  }
}

template <class Kind, int kTiles>
struct Sums {
  typename Kind::Sum planes[Kind::kPlanes][kTiles][4] = {};
  typename Kind::Sum alone[4] = {};  // of the weights; every column of it is the same

  __device__ float value(int tile, int i, float x_scale) const {
    typename Kind::Sum of_planes[Kind::kPlanes];
    UNROLL for (int plane = 0; plane < Kind::kPlanes; ++plane) of_planes[plane] =
        planes[plane][tile][i];
    return Kind::value(of_planes, alone[i], x_scale);
  }
};

// sums += one stage's weights x its x. In bytes both kinds are laid out alike: 32 along `in` are
// one A operand, 64 are the B operands of two.
template <class Kind, int kTiles>
__device__ void multiply_stage(const unsigned char* stage, Sums<Kind, kTiles>& sums) {
  const int lane = gpu::lane(), warp = gpu::warp();
  UNROLL for (int half = 0; half < 2; ++half) {
    std::uint32_t weights[2][4];
    UNROLL for (int i = 0; i < 2; ++i) gpu::ldmatrix_x4(
        weights[i], stage + tile_offset(warp * 16 + lane % 16, half * 4 + i * 2 + lane / 16));
    if constexpr (Kind::kPlanes > 1) {
      constexpr std::uint32_t kOnes = 0x01010101;
      UNROLL for (int i = 0; i < 2; ++i) multiply(sums.alone, weights[i], {kOnes, kOnes});
    }
    UNROLL for (int plane = 0; plane < Kind::kPlanes; ++plane) {
      UNROLL for (int tile = 0; tile < kTiles; ++tile) {
        std::uint32_t x[4];
        gpu::ldmatrix_x4(
            x, stage + kWeightBytes +
                   tile_offset((plane * kTiles + tile) * 8 + lane % 8, half * 4 + lane / 8));
        multiply(sums.planes[plane][tile], weights[0], {x[0], x[1]});
        multiply(sums.planes[plane][tile], weights[1], {x[2], x[3]});
      }
    }
  }
}

// Calls body(tile, i, row, out) for each of a thread's elements of D that exist.
template <int kTiles, class Body>
__device__ void each_element(const LinearPlan& plan, int first_row, int first_out,
                             const Body& body) {
  const int lane = gpu::lane(), warp = gpu::warp();
  UNROLL for (int tile = 0; tile < kTiles; ++tile) {
    UNROLL for (int i = 0; i < 4; ++i) {
      const int out = first_out + warp * 16 + lane / 4 + i / 2 * 8,
                row = first_row + tile * 8 + lane % 4 * 2 + i % 2;
      if (row < plan.rows && out < plan.out) body(tile, i, row, out);
    }
  }
}

// The block that finds all others of its tile done adds their partial sums, the upper tree. One
// thread's fences order what all threads wrote before the barrier against what all read after the
// other.
__device__ void finish_last(const LinearJob& job, int tile_rows, int first_row, int first_out) {
  const LinearPlan& plan = job.plan;
  SHARED(int, last);
  __syncthreads();
  if (gpu::thread() == 0) {
    __threadfence();
    last = atomicAdd(&job.arrived[gpu::block_y() * int(gridDim.x) + gpu::block()], 1u) ==
           unsigned(plan.groups) - 1;
    if (last) __threadfence();
  }
  __syncthreads();
  if (!last) return;
  for (int i = gpu::thread(); i < tile_rows * kTileOuts; i += kThreads) {
    const int row = first_row + i / kTileOuts, out = first_out + i % kTileOuts;
    if (row >= plan.rows || out >= plan.out) continue;
    TreeSum tree;
    float total = 0;
    for (int g = 0; g < plan.groups; ++g)
      total = tree.push(g, job.partials[plan.partial(g, row, out)]);
    job.finish(row, out, total);
  }
}

template <class Kind, int kTiles>
__global__ void linear_kernel(LinearJob job) {
  using S = Shape<Kind, kTiles>;
  DYN_SHARED(unsigned char, ring);
  const LinearPlan& plan = job.plan;
  const int first_row = gpu::block() * kTiles * 8, first_out = gpu::block_y() * kTileOuts;
  const int first_part = gpu::block_z() * plan.group_parts,
            end_part = first_part + plan.group_parts;
  Stages<S::kStep> ahead(plan, first_part, end_part);
  int loaded = 0, step = 0;
  const auto load = [&] {
    if (!ahead.done()) {
      load_stage<Kind, kTiles>(job, ring + loaded % S::kStages * S::kStageBytes, first_row,
                               first_out, ahead);
      ahead.next();
    }
    ++loaded;
    gpu::cp_async_commit();
  };

  while (loaded < S::kStages - 1) load();
  Sums<Kind, kTiles> sums;
  TreeSum trees[kTiles][4];
  float totals[kTiles][4] = {};  // of a part, then of all parts up to it that are one subtree
  for (int part = first_part; part < end_part; ++part) {
    const int size = plan.size(part);
    for (int at = 0; at < size; at += S::kStep, ++step) {
      gpu::cp_async_wait<S::kStages - 2>();
      __syncthreads();  // all have this stage, and none still reads the one that is filled next
      load();
      multiply_stage<Kind, kTiles>(ring + step % S::kStages * S::kStageBytes, sums);
      if ((at + S::kStep) % kInputChunk != 0 && at + S::kStep < size) continue;
      const int chunk = at / kInputChunk;
      each_element<kTiles>(plan, first_row, first_out, [&](int tile, int i, int row, int) {
        const float x_scale = Kind::kPlanes > 1 ? job.x_scales[plan.scale(row, part, chunk)] : 1.0f;
        const float value = sums.value(tile, i, x_scale);
        totals[tile][i] = chunk == 0 ? value : totals[tile][i] + value;
      });
      sums = {};
    }
    UNROLL for (int tile = 0; tile < kTiles; ++tile) {
      UNROLL for (int i = 0; i < 4; ++i) totals[tile][i] =
          trees[tile][i].push(part - first_part, size > 0 ? totals[tile][i] : -0.0f);
    }
  }
  if (plan.groups > 1) {
    each_element<kTiles>(plan, first_row, first_out, [&](int tile, int i, int row, int out) {
      job.partials[plan.partial(gpu::block_z(), row, out)] = totals[tile][i];
    });
    return finish_last(job, kTiles * 8, first_row, first_out);
  }
  each_element<kTiles>(plan, first_row, first_out, [&](int tile, int i, int row, int out) {
    job.finish(row, out, totals[tile][i]);
  });
}

template <class Kind, int kTiles>
int start(const LinearJob& job, Stream stream) {
  using S = Shape<Kind, kTiles>;
  const LinearPlan& plan = job.plan;
  const dim3 grid(unsigned(plan.row_tiles), unsigned(plan.out_tiles), unsigned(plan.groups));
  return gpu::launch(linear_kernel<Kind, kTiles>, grid, kThreads,
                     std::size_t{S::kStages} * S::kStageBytes, stream, job);
}

template <class Kind>
int start(const LinearJob& job, Stream stream) {
  switch (job.plan.tile_rows) {
    case 8:
      return start<Kind, 1>(job, stream);
    case 16:
      return start<Kind, 2>(job, stream);
    case 32:
      return start<Kind, 4>(job, stream);
    case 64:
      return start<Kind, 8>(job, stream);
    default:
      if constexpr (Kind::kPlanes == 1)
        return start<Kind, 16>(job, stream);
      else
        return start<Kind, 8>(job, stream);
  }
}

int linear(const Linear& p, const LinearFinish& finish, Workspace workspace, Stream stream) {
  if (p.rows <= 0 || p.out <= 0) return 0;
  if (p.dtype == Dtype::f32) return linear_f32(p, finish, stream);
  const LinearPlan plan = plan_of(p);
  if (workspace.bytes < plan.bytes) return kTooSmall;
  auto* memory = static_cast<unsigned char*>(workspace.memory);
  if (const int error = prepare_input(plan, p.x, memory, stream)) return error;
  const LinearJob job{.plan = plan,
                      .weight = static_cast<const unsigned char*>(p.weight),
                      .x = memory,
                      .x_scales = reinterpret_cast<const float*>(memory + plan.scales_at),
                      .partials = reinterpret_cast<float*>(memory + plan.partials_at),
                      .arrived = reinterpret_cast<unsigned*>(memory + plan.arrived_at),
                      .finish = finish,
                      .aligned = aligned_parts(p)};
  return p.dtype == Dtype::bf16 ? start<Bf16>(job, stream) : start<I8>(job, stream);
}

}  // namespace

std::size_t linear_workspace(const Linear& p) {
  return p.dtype == Dtype::f32 || p.rows <= 0 ? 0 : plan_of(p).bytes;
}

int linear(const Linear& p, Workspace workspace, Stream stream) {
  const bool whole = p.share.whole();
  return linear(p,
                {.scales = whole ? p.scales : nullptr,
                 .bias = whole ? p.bias : nullptr,
                 .y = p.y,
                 .out = p.out},
                workspace, stream);
}

int linear_add(const Linear& p, float scale, Workspace workspace, Stream stream) {
  return linear(
      p, {.scales = p.scales, .bias = p.bias, .y = p.y, .out = p.out, .add = true, .scale = scale},
      workspace, stream);
}

}  // namespace dex::cuda
