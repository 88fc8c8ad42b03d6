// Rotary embedding, alone or with everything else that stands between the qkv product and
// attention.
#include "kernels/ceil_div.h"
#include "kernels/cuda/angles.h"
#include "kernels/cuda/cache_type.h"
#include "kernels/cuda/row_norm.h"
#include "kernels/row_ops.h"

namespace dex::cuda {
namespace {

constexpr int kThreads = 128;  // a warp per row and head

struct Rotated {
  float low, high;
};
// The pair (i, i + head_dim/2).
__device__ Rotated rotated(float low, float high, std::int32_t position, float frequency) {
  const SineCosine at = sine_cosine(float(position) * frequency);
  return {fmaf(-high, at.sine, low * at.cosine), fmaf(low, at.sine, high * at.cosine)};
}

struct RowHead {
  int row, head;
};
__device__ RowHead row_and_head(int heads) {
  const std::int64_t warp = (std::int64_t{gpu::block()} * kThreads + gpu::thread()) / 32;
  return {int(warp / heads), int(warp % heads)};
}

__global__ void rope_kernel(Rope p) {
  const auto [row, head] = row_and_head(p.heads);
  if (row >= p.rows) return;
  const int half = p.head_dim / 2;
  float* x = p.x + (std::int64_t(row) * p.heads + head) * p.head_dim;
  for (int i = gpu::lane(); i < half; i += 32) {
    const Rotated pair = rotated(x[i], x[half + i], p.positions[row], p.inverse_frequencies[i]);
    x[i] = pair.low;
    x[half + i] = pair.high;
  }
}

// Norms if there is a norm, and rotates, one head by one warp.
template <class T>
__device__ void turn_head(const SplitQkv& p, const float* x, const float* norm, int row, T* to) {
  const int half = p.head_dim / 2;
  const float scale = norm ? warp_norm_scale(x, p.head_dim, p.eps) : 1.0f;
  for (int i = gpu::lane(); i < half; i += 32) {
    float low = x[i], high = x[half + i];
    if (norm) low = low * scale * norm[i], high = high * scale * norm[half + i];
    const Rotated pair = rotated(low, high, p.positions[row], p.inverse_frequencies[i]);
    to[i] = stored<T>(pair.low);
    to[half + i] = stored<T>(pair.high);
  }
}

template <class T>
__global__ void split_qkv_kernel(SplitQkv p) {
  const int heads = p.heads + 2 * p.kv_heads;
  const auto [row, head] = row_and_head(heads);
  if (row >= p.rows) return;
  const float* x = p.qkv + (std::int64_t(row) * heads + head) * p.head_dim;
  const auto in_cache = [&, row = row](void* cache, int kv_head) {
    return static_cast<T*>(cache) +
           (std::int64_t{p.cache_rows[row]} * p.kv_heads + kv_head) * p.head_dim;
  };
  if (head < p.heads) {
    turn_head(p, x, p.q_norm, row, p.q + (std::int64_t(row) * p.heads + head) * p.head_dim);
  } else if (head < p.heads + p.kv_heads) {
    turn_head(p, x, p.k_norm, row, in_cache(p.keys, head - p.heads));
  } else {
    T* to = in_cache(p.values, head - p.heads - p.kv_heads);
    for (int i = gpu::lane(); i < p.head_dim; i += 32) to[i] = stored<T>(x[i]);
  }
}

dim3 blocks_of(int rows, int heads) {
  return dim3(unsigned(ceil_div(std::int64_t{rows} * heads * 32, kThreads)));
}

}  // namespace

int rope(const Rope& p, Stream stream) {
  if (p.rows <= 0) return 0;
  return gpu::launch(rope_kernel, blocks_of(p.rows, p.heads), kThreads, 0, stream, p);
}

int split_qkv(const SplitQkv& p, Stream stream) {
  if (p.rows <= 0) return 0;
  const dim3 blocks = blocks_of(p.rows, p.heads + 2 * p.kv_heads);
  return p.dtype == Dtype::f32
             ? gpu::launch(split_qkv_kernel<float>, blocks, kThreads, 0, stream, p)
             : gpu::launch(split_qkv_kernel<gpu::bf16>, blocks, kThreads, 0, stream, p);
}

}  // namespace dex::cuda
