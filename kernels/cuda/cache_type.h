// A float as it is kept: itself, or a bf16.
#pragma once
#include "kernels/cuda/gpu.h"

namespace dex::cuda {

template <class T>
__device__ T stored(float value);
template <>
__device__ inline float stored<float>(float value) {
  return value;
}
template <>
__device__ inline gpu::bf16 stored<gpu::bf16>(float value) {
  return gpu::to_bf16(value);
}

__device__ inline float loaded(float value) { return value; }
__device__ inline float loaded(gpu::bf16 value) { return gpu::to_float(value); }

}  // namespace dex::cuda
