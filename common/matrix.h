// A weight matrix as a linear reads it: float, bf16, or int8 with a scale per output.
#pragma once
#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "common/safetensors.h"
#include "kernels/types.h"
#include "kernels/workers.h"

namespace dex {

class Matrix {
 public:
  Matrix() = default;
  // Converts float values (out, in). int8: each output's values become the nearest multiples, -127 .. 127, of its scale
  // (largest size / 127); a value that is not finite is Error(io).
  Matrix(const at::Tensor& values_OI, Dtype dtype);
  // Tensors of a file, one above the other; errors as load_tensor().
  struct Part {
    std::string name;
    std::int64_t out;
  };
  static Matrix load(const WeightFile& file, const std::vector<Part>& parts, std::int64_t in, Dtype dtype);
  Matrix first_rows(std::int64_t count) const;              // shares memory

  std::int64_t out() const { return values_.size(0); }
  std::int64_t in() const { return values_.size(1); }
  Dtype dtype() const { return dtype_; }
  const at::Tensor& values() const { return values_; }  // (out, in) of dtype
  at::Tensor rows(const at::Tensor& index) const;       // those rows as f32

  // y_RO = x_RI W^T (+ bias_O), f32, with the row-invariant kernel. `next`: the matrix read after this one, if known.
  void multiply(const at::Tensor& x_RI, at::Tensor& y_RO, Workers& workers, const at::Tensor& bias_O = {},
                const Matrix* next = nullptr) const;

 private:
  at::Tensor values_, scales_;  // scales (out) f32: int8 only
  Dtype dtype_ = Dtype::f32;
};

}  // namespace dex
