#include "common/model/tensors.h"

#include <fmt/ranges.h>

#include "common/base/error.h"
#include "common/base/finite.h"

namespace dex {

at::ScalarType scalar_type(StoredType type) {
  switch (type) {
    case StoredType::f32:
      return at::kFloat;
    case StoredType::f16:
      return at::kHalf;
    case StoredType::bf16:
      return at::kBFloat16;
    case StoredType::f64:
      return at::kDouble;
    case StoredType::i64:
      return at::kLong;
    case StoredType::i32:
      return at::kInt;
    case StoredType::u8:
      return at::kByte;
  }
  fail(ExitCode::bug, "stored type {} has no libtorch type", int(type));
}

at::ScalarType scalar_type(Dtype dtype) {
  return dtype == Dtype::f32 ? at::kFloat : dtype == Dtype::bf16 ? at::kBFloat16 : at::kChar;
}

at::Tensor view_of(const StoredTensor& stored) {
  return at::from_blob(const_cast<std::byte*>(stored.bytes.data()), stored.shape,
                       scalar_type(stored.type));
}

StoredTensor stored_view(const at::Tensor& tensor) {
  require(tensor.is_contiguous() && tensor.device().is_cpu(), ExitCode::bug,
          "only contiguous CPU tensors can be stored");
  StoredTensor stored;
  switch (tensor.scalar_type()) {
    case at::kFloat:
      stored.type = StoredType::f32;
      break;
    case at::kBFloat16:
      stored.type = StoredType::bf16;
      break;
    case at::kLong:
      stored.type = StoredType::i64;
      break;
    default:
      fail(ExitCode::bug, "tensors of type {} are not stored", at::toString(tensor.scalar_type()));
  }
  stored.shape = tensor.sizes().vec();
  stored.bytes = {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
  return stored;
}

at::Tensor stored_tensor(const WeightFile& file, const std::string& name,
                         const std::vector<std::int64_t>& shape) {
  const StoredTensor& stored = file.at(name);
  require(stored.shape == shape, ExitCode::io,
          "{}: tensor {} has shape [{}], config.json wants [{}]", file.origin(), name,
          fmt::join(stored.shape, ", "), fmt::join(shape, ", "));
  require(at::isFloatingType(scalar_type(stored.type)), ExitCode::io,
          "{}: tensor {} has type {}, wanted F32, F16 or BF16", file.origin(), name,
          name_of(stored.type));
  require(all_finite(stored), ExitCode::io, "{}: tensor {} holds NaN or infinity", file.origin(),
          name);
  return view_of(stored);
}

at::Tensor load_tensor(const WeightFile& file, const std::string& name,
                       const std::vector<std::int64_t>& shape, Dtype dtype) {
  return stored_tensor(file, name, shape)
      .to(scalar_type(dtype), /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace dex
