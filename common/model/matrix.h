// A weight matrix: float, bf16, or int8 with a scale per output.
#pragma once
#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "common/base/safetensors.h"
#include "kernels/input_parts.h"
#include "kernels/thread_pool.h"
#include "kernels/types.h"

namespace dex {

// Decoding reads weights in panels (kernels/panels.h), training in rows with libtorch's operators.
enum class WeightLayout { panels, rows };

struct WeightPlace {
  WeightLayout layout;
  at::Device device;  // panels lie on the CPU only
  WeightPlace(WeightLayout layout, at::Device device = at::kCPU)
      : layout(layout), device(device) {}  // NOLINT: a layout will do
};

class Matrix {
 public:
  Matrix() = default;
  // Converts float values (out, in). int8: each output's values become the nearest multiples, -127
  // .. 127, of its scale (largest size / 127); a value that is not finite is Error(io).
  Matrix(const at::Tensor& values_OI, Dtype dtype, WeightPlace place = WeightLayout::panels);
  // Tensors of a file, one above the other; errors as load_tensor().
  struct Part {
    std::string name;
    std::int64_t out;
  };
  static Matrix load(const WeightFile& file, const std::vector<Part>& parts, std::int64_t in,
                     Dtype dtype, WeightPlace place);
  // Outputs [first, first + count); shares memory. In panels `first` is a multiple of kPanel.
  Matrix outputs(std::int64_t first, std::int64_t count) const;
  // Where devices may share out the input (kernels/input_parts.h): at every so many columns.
  void share_input_by(std::int64_t columns) { unit_ = int(columns); }

  std::int64_t out() const { return out_; }
  std::int64_t in() const { return in_; }
  Dtype dtype() const { return dtype_; }
  std::int64_t bytes() const;                      // of weights and scales: what a product reads
  at::Tensor rows(const at::Tensor& index) const;  // those rows as f32, where the weights are
  const at::Tensor& plain() const;                 // (out, in) of dtype; only in the layout of rows

  // y_RO = x_RI W^T (+ bias_O), f32, with the row-invariant kernel; only in panels. `next`: the
  // matrix read after this one.
  void multiply(const at::Tensor& x_RI, at::Tensor& y_RO, ThreadPool& pool,
                const at::Tensor& bias_O = {}, const Matrix* next = nullptr) const;

 private:
  at::Tensor weight_, scales_;  // weight: (out, in), or packed; scales (out) f32: int8 only
  std::int64_t out_ = 0, in_ = 0;
  int unit_ = kInputChunk;
  Dtype dtype_ = Dtype::f32;
  WeightLayout layout_ = WeightLayout::panels;
};

}  // namespace dex
