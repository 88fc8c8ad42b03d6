// Sums and maxima over a warp or a block, each by one fixed tree: every thread gets the same bits.
#pragma once
#include "kernels/cuda/gpu.h"
#include "kernels/rank_key.h"

namespace dex::cuda {

template <class T, class Op>
__device__ T over_warp(T value, Op op) {
  UNROLL for (int distance = 16; distance > 0; distance /= 2) value =
      op(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

// All kThreads must call it. `shared` has kThreads / 32 elements; it may be used again after
// another barrier, so two of them in turn spare one.
template <int kThreads, class T, class Op>
__device__ T over_block(T value, Op op, T* shared) {
  value = over_warp(value, op);
  if (gpu::lane() == 0) shared[gpu::warp()] = value;
  __syncthreads();
  T all = shared[0];
  UNROLL for (int i = 1; i < kThreads / 32; ++i) all = op(all, shared[i]);
  return all;
}

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

}  // namespace dex::cuda
