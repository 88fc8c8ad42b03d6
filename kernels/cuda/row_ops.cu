// Small per-row operators: each reads its input once and writes its output once, neighbouring
// threads neighbouring elements. With a few rows of 8192 floats that is far less than a weight's
// bytes; what counts is that they are few launches.
#include "kernels/row_ops.h"

#include "kernels/ceil_div.h"
#include "kernels/cuda/cache_type.h"
#include "kernels/cuda/gpu_math.h"
#include "kernels/cuda/row_norm.h"

namespace dex::cuda {
namespace {

constexpr int kThreads = 256;

// One thread per element, in a grid of one dimension.
template <class... P, class... A>
int launch_elements(void (*kernel)(P...), std::int64_t count, Stream stream, A&&... arguments) {
  if (count <= 0) return 0;
  return gpu::launch(kernel, dim3(unsigned(ceil_div(count, kThreads))), kThreads, 0, stream,
                     std::forward<A>(arguments)...);
}
__device__ std::int64_t element() { return std::int64_t{gpu::block()} * kThreads + gpu::thread(); }

// A block per row.
__global__ void rms_norm_kernel(RmsNorm p) {
  const float* x = p.x + std::int64_t{gpu::block()} * p.size;
  float* y = p.y + std::int64_t{gpu::block()} * p.size;
  float squares = 0;
  for (int i = gpu::thread(); i < p.size; i += kThreads) squares = fmaf(x[i], x[i], squares);
  SHARED(float[kThreads / 32], warps);
  const float scale = norm_scale(over_block<kThreads>(squares, Add(), warps), p.size, p.eps);
  for (int i = gpu::thread(); i < p.size; i += kThreads) y[i] = x[i] * scale * p.weight[i];
}

// A warp per row: heads are short.
__global__ void rms_norm_short_kernel(RmsNorm p) {
  const std::int64_t row = element() / 32;
  if (row >= p.rows) return;
  const float* x = p.x + row * p.size;
  const float scale = warp_norm_scale(x, p.size, p.eps);
  for (int i = gpu::lane(); i < p.size; i += 32) p.y[row * p.size + i] = x[i] * scale * p.weight[i];
}

__global__ void silu_mul_kernel(SiluMul p) {
  const std::int64_t i = element();
  if (i >= p.count) return;
  const float gate = p.gate[i], silu = gate / (1.0f + gpu::exp_of(-gate));
  p.y[i] = p.up ? silu * p.up[i] : silu;
}

__global__ void axpy_kernel(Axpy p) {
  const std::int64_t i = element();
  if (i < p.count) p.y[i] = fmaf(p.scale, p.x[i], p.y[i]);
}

template <class T>
__global__ void convert_kernel(const float* from, T* to, std::int64_t count) {
  const std::int64_t i = element();
  if (i < count) to[i] = stored<T>(from[i]);
}

template <class T>
__global__ void kv_append_kernel(KvAppend p) {
  const std::int64_t i = element();
  if (i >= std::int64_t(p.rows) * p.row_size) return;
  const std::int64_t row = i / p.row_size,
                     to = std::int64_t{p.cache_rows[row]} * p.row_size + i % p.row_size;
  static_cast<T*>(p.keys)[to] = stored<T>(p.k[i]);
  static_cast<T*>(p.values)[to] = stored<T>(p.v[i]);
}

template <class T>
__global__ void gather_rows_kernel(GatherRows p) {
  const std::int64_t i = element();
  if (i >= std::int64_t(p.rows) * p.size) return;
  const std::int64_t row = i / p.size, from = std::int64_t{p.ids[row]} * p.size + i % p.size;
  p.y[i] = loaded(static_cast<const T*>(p.table)[from]);
}

}  // namespace

int rms_norm(const RmsNorm& p, Stream stream) {
  if (p.rows <= 0) return 0;
  if (p.size <= kShortRow)
    return launch_elements(rms_norm_short_kernel, std::int64_t{p.rows} * 32, stream, p);
  return gpu::launch(rms_norm_kernel, dim3(unsigned(p.rows)), kThreads, 0, stream, p);
}

int silu_mul(const SiluMul& p, Stream stream) {
  return launch_elements(silu_mul_kernel, p.count, stream, p);
}
int axpy(const Axpy& p, Stream stream) { return launch_elements(axpy_kernel, p.count, stream, p); }

int convert(const float* from, void* to, std::int64_t count, Dtype dtype, Stream stream) {
  if (dtype == Dtype::f32)
    return launch_elements(convert_kernel<float>, count, stream, from, static_cast<float*>(to),
                           count);
  return launch_elements(convert_kernel<gpu::bf16>, count, stream, from,
                         static_cast<gpu::bf16*>(to), count);
}

int kv_append(const KvAppend& p, Stream stream) {
  const std::int64_t count = std::int64_t{p.rows} * p.row_size;
  return launch_elements(
      p.dtype == Dtype::f32 ? kv_append_kernel<float> : kv_append_kernel<gpu::bf16>, count, stream,
      p);
}

int gather_rows(const GatherRows& p, Stream stream) {
  const std::int64_t count = std::int64_t{p.rows} * p.size;
  return launch_elements(
      p.dtype == Dtype::f32 ? gather_rows_kernel<float> : gather_rows_kernel<gpu::bf16>, count,
      stream, p);
}

}  // namespace dex::cuda
