// The root mean square of a row: what rms_norm and split_qkv must compute alike.
#pragma once
#include "kernels/cuda/reduce.h"

namespace dex::cuda {

constexpr int kShortRow = 256;  // rows up to this size are a warp's

__device__ inline float norm_scale(float squares, int size, float eps) {
  return 1.0f / sqrtf(squares / float(size) + eps);
}

// All lanes of a warp call it.
__device__ inline float warp_norm_scale(const float* x, int size, float eps) {
  float squares = 0;
  for (int i = gpu::lane(); i < size; i += 32) squares = fmaf(x[i], x[i], squares);
  return norm_scale(over_warp(squares, Add()), size, eps);
}

}  // namespace dex::cuda
