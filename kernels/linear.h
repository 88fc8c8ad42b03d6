// y = x W^T (+ bias) for a few rows against a large weight: the weight is streamed once whatever the number of rows.
#pragma once
#include "kernels/types.h"
#include "kernels/workers.h"

namespace dex {

struct Linear {
  const float* x = nullptr;     // (rows, in); narrowed to bf16 first when the weight is bf16
  const void* weight = nullptr;  // (out, in) of dtype
  const float* bias = nullptr;   // (out), or null
  float* y = nullptr;            // (rows, out)
  int rows = 0, in = 0, out = 0;
  Dtype dtype = Dtype::f32;
};

namespace cpu {
// A row of y has the same bits whatever `rows`, its place among them and the number of threads.
void linear(const Linear& p, Workers& workers);
}  // namespace cpu

}  // namespace dex
