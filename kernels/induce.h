// An adapter's rows: y = h + alpha (down silu(up norm(h) + up_bias) + down_bias). On the CPU the
// same comes from its pieces.
#pragma once
#include "kernels/linear.h"
#include "kernels/stream.h"

namespace dex {

struct InduceRows {
  const float* h = nullptr;          // (rows, hidden)
  const float* norm = nullptr;       // (hidden)
  const void* up = nullptr;          // (width, hidden) of dtype
  const float* up_bias = nullptr;    // (width)
  const void* down = nullptr;        // (hidden, width) of dtype
  const float* down_bias = nullptr;  // (hidden)
  float* y = nullptr;                // (rows, hidden); may be h
  int rows = 0, hidden = 0, width = 0;
  float alpha = 0, eps = 0;
  Dtype dtype = Dtype::f32;  // f32 or bf16
};

namespace cuda {
int induce_rows(const InduceRows& p, Workspace workspace, Stream stream);
std::size_t induce_rows_workspace(const InduceRows& p);  // bytes; the pointers do not matter
}  // namespace cuda

}  // namespace dex
