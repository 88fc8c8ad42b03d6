#include "common/model/matrix.h"

#include "common/base/error.h"
#include "common/model/tensors.h"
#include "common/model/weight_memory.h"
#include "kernels/linear.h"
#include "kernels/panels.h"

namespace dex {
namespace {

// The scale of each output, (out, 1).
at::Tensor scales_of(const at::Tensor& values) {
  const at::Tensor largest = values.abs().amax(1, /*keepdim=*/true).to(at::kFloat);
  require(largest.isfinite().all().item<bool>(), ExitCode::io,
          "int8 weights are made of finite values, here one is not");
  return largest / 127;
}

}  // namespace

Matrix::Matrix(const at::Tensor& values, Dtype dtype, WeightPlace place)
    : out_(values.size(0)), in_(values.size(1)), dtype_(dtype), layout_(place.layout) {
  require(place.device.is_cpu() || (layout_ == WeightLayout::rows && dtype != Dtype::i8),
          ExitCode::bug, "weights of {} in panels lie on the CPU", name_of(dtype));
  at::Tensor plain = values;
  if (dtype == Dtype::i8) {
    const at::Tensor scales = scales_of(values);
    // A scale below the normal numbers is coarse: without the clamp its values would pass 127.
    plain = at::where(scales > 0, values.to(at::kFloat) / scales, 0).round_().clamp_(-127, 127);
    scales_ = scales.flatten().contiguous();
  }
  if (!place.device.is_cpu()) {
    weight_ = plain.to(place.device, scalar_type(dtype));
  } else if (layout_ == WeightLayout::rows) {
    weight_ = empty_weights({out_, in_}, scalar_type(dtype)).copy_(plain);
  } else {
    plain = plain.to(scalar_type(dtype)).contiguous();
    weight_ = empty_weights({packed_elements(out_, in_, dtype)}, scalar_type(dtype));
    pack_panels(plain.data_ptr(), weight_.data_ptr(), out_, in_, dtype);
  }
}

Matrix Matrix::load(const WeightFile& file, const std::vector<Part>& parts, std::int64_t in,
                    Dtype dtype, WeightPlace place) {
  std::vector<at::Tensor> stored;
  for (const Part& part : parts) stored.push_back(stored_tensor(file, part.name, {part.out, in}));
  try {
    return Matrix(stored.size() == 1 ? stored[0] : at::cat(stored), dtype, place);
  } catch (const Error& error) {
    fail(error.code(), "{}: tensor {}: {}", file.origin(), parts.front().name, error.what());
  }
}

std::int64_t Matrix::bytes() const {
  return out_ * in_ * size_of(dtype_) + (scales_.defined() ? std::int64_t(scales_.nbytes()) : 0);
}

Matrix Matrix::outputs(std::int64_t first, std::int64_t count) const {
  const bool rows = layout_ == WeightLayout::rows;
  require(first >= 0 && count >= 0 && first + count <= out_ && (rows || first % kPanel == 0),
          ExitCode::bug, "outputs {} .. {} of {}", first, first + count, out_);
  Matrix some = *this;
  some.out_ = count;
  some.weight_ = rows ? weight_.narrow(0, first, count)
                      : weight_.narrow(0, packed_elements(first, in_, dtype_),
                                       packed_elements(count, in_, dtype_));
  if (scales_.defined()) some.scales_ = scales_.narrow(0, first, count);
  return some;
}

at::Tensor Matrix::rows(const at::Tensor& index) const {
  at::Tensor chosen;
  if (layout_ == WeightLayout::rows) {
    chosen = weight_.index_select(0, index.to(weight_.device())).to(at::kFloat);
  } else {
    chosen = at::empty({index.numel(), in_}, weight_.options());
    const at::Tensor wide = index.to(at::kLong);
    for (std::int64_t i = 0; i < index.numel(); ++i)
      unpack_row(weight_.data_ptr(), chosen[i].data_ptr(), wide.data_ptr<std::int64_t>()[i], in_,
                 dtype_);
    chosen = chosen.to(at::kFloat);
  }
  return scales_.defined() ? chosen * scales_.index_select(0, index).unsqueeze(1) : chosen;
}

const at::Tensor& Matrix::plain() const {
  require(layout_ == WeightLayout::rows && dtype_ != Dtype::i8, ExitCode::bug,
          "weights of {} in panels are for decoding only", name_of(dtype_));
  return weight_;
}

void Matrix::multiply(const at::Tensor& x, at::Tensor& y, ThreadPool& pool, const at::Tensor& bias,
                      const Matrix* next) const {
  require(layout_ == WeightLayout::panels, ExitCode::bug, "weights in rows are for training only");
  cpu::linear({.x = x.data_ptr<float>(),
               .weight = weight_.data_ptr(),
               .bias = bias.defined() ? bias.data_ptr<float>() : nullptr,
               .y = y.data_ptr<float>(),
               .rows = int(x.size(0)),
               .in = int(in_),
               .out = int(out_),
               .dtype = dtype_,
               .scales = scales_.defined() ? scales_.data_ptr<float>() : nullptr,
               .next = next ? next->weight_.data_ptr() : nullptr,
               .next_bytes = next ? std::int64_t(next->weight_.nbytes()) : 0,
               .unit = unit_},
              pool);
}

}  // namespace dex
