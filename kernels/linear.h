// y = x W^T (+ bias) for a few rows against a large weight: the weight is streamed once whatever
// the number of rows.
#pragma once
#include <cstdint>

#include "kernels/input_parts.h"
#include "kernels/stream.h"
#include "kernels/thread_pool.h"
#include "kernels/types.h"

namespace dex {

struct Linear {
  const float* x = nullptr;  // (rows, in), or the columns of `share`
  // (out, in), or the columns of `share`, of dtype: for the CPU as panels.h packs it, on a GPU row
  // by row
  const void* weight = nullptr;
  const float* bias = nullptr;  // (out), or null
  float* y = nullptr;           // (rows, out)
  int rows = 0, in = 0, out = 0;
  Dtype dtype = Dtype::f32;
  // (out): what a weight of i8 is multiplied by; null for other types
  const float* scales = nullptr;
  const void* next = nullptr;  // a hint: the weight read after this one, or null
  std::int64_t next_bytes = 0;
  int unit = kInputChunk;  // of InputParts
  // The parts whose columns x and weight hold. Fewer than all: y is their partial sum, and scales
  // and bias wait for finish_linear.
  PartShare share;

  constexpr InputParts parts() const { return {in, unit}; }
  constexpr int columns() const { return parts().begin(share.last) - parts().begin(share.first); }
};

// The partial sums of all shares of one size, in order: the rest of the tree, then scales and bias.
struct FinishLinear {
  const float* partials = nullptr;  // (shares, rows, out)
  const float* scales = nullptr;    // (out), or null
  const float* bias = nullptr;      // (out), or null
  float* y = nullptr;               // (rows, out)
  int shares = 0;                   // 2, 4 or 8
  int rows = 0, out = 0;
};

// How x meets the weight: f32 as it is; bf16 rounded to bf16, products exact, sums in float; i8 as
// integers of a scale per row and chunk of `in`, their products summed exactly, the chunks in
// float. Chunks and their order: input_parts.h.
namespace cpu {
// A row of y has the same bits whatever `rows`, its place among them and the number of threads.
void linear(const Linear& p, ThreadPool& pool);
// The bits of one linear of all parts.
void finish_linear(const FinishLinear& p);
}  // namespace cpu

namespace cuda {
// A row of y has the same bits whatever `rows`, its place among them and the other outputs. i8
// gives cpu::linear's bits.
int linear(const Linear& p, Workspace workspace, Stream stream);
// y += scale * (x W^T + bias): a residual without a pass of its own. Of all parts only.
int linear_add(const Linear& p, float scale, Workspace workspace, Stream stream);
// bytes either of them needs; the pointers do not matter
std::size_t linear_workspace(const Linear& p);
int finish_linear(const FinishLinear& p, Stream stream);
}  // namespace cuda

}  // namespace dex
