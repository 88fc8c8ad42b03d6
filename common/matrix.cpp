#include "common/matrix.h"

#include "common/error.h"
#include "common/tensors.h"
#include "common/weight_memory.h"
#include "kernels/linear.h"

namespace dex {

Matrix::Matrix(const at::Tensor& values, Dtype dtype) : dtype_(dtype) {
  if (dtype != Dtype::i8) {
    values_ = empty_weights(values.sizes().vec(), scalar_type(dtype)).copy_(values);
    return;
  }
  const at::Tensor wide = values.to(at::kFloat), largest = wide.abs().amax(1, /*keepdim=*/true);
  require(largest.isfinite().all().item<bool>(), ExitCode::io, "weights of int8 are made from finite values; here one is not");
  const at::Tensor scales = largest / 127;
  values_ = empty_weights(values.sizes().vec(), at::kChar).copy_(at::where(scales > 0, wide / scales, 0).round());
  scales_ = scales.flatten().contiguous();
}

Matrix Matrix::load(const WeightFile& file, const std::vector<Part>& parts, std::int64_t in, Dtype dtype) {
  std::vector<at::Tensor> stored;
  for (const Part& part : parts) stored.push_back(stored_tensor(file, part.name, {part.out, in}));
  try {
    return Matrix(stored.size() == 1 ? stored[0] : at::cat(stored), dtype);
  } catch (const Error& error) {
    fail(error.code(), "{}: tensor {}: {}", file.origin(), parts.front().name, error.what());
  }
}

Matrix Matrix::first_rows(std::int64_t count) const {
  Matrix first = *this;
  first.values_ = values_.narrow(0, 0, count);
  if (scales_.defined()) first.scales_ = scales_.narrow(0, 0, count);
  return first;
}

at::Tensor Matrix::rows(const at::Tensor& index) const {
  const at::Tensor chosen = values_.index_select(0, index).to(at::kFloat);
  return scales_.defined() ? chosen * scales_.index_select(0, index).unsqueeze(1) : chosen;
}

void Matrix::multiply(const at::Tensor& x, at::Tensor& y, Workers& workers, const at::Tensor& bias,
                      const Matrix* next) const {
  cpu::linear({.x = x.data_ptr<float>(), .weight = values_.data_ptr(),
               .bias = bias.defined() ? bias.data_ptr<float>() : nullptr, .y = y.data_ptr<float>(),
               .rows = static_cast<int>(x.size(0)), .in = static_cast<int>(in()), .out = static_cast<int>(out()),
               .dtype = dtype_, .scales = scales_.defined() ? scales_.data_ptr<float>() : nullptr,
               .next = next ? next->values_.data_ptr() : nullptr,
               .next_bytes = next ? static_cast<std::int64_t>(next->values_.nbytes()) : 0}, workers);
}

}  // namespace dex
