// Between stored tensors (files) and libtorch's.
#pragma once
#include <ATen/ATen.h>

#include <span>
#include <string>
#include <vector>

#include "common/base/safetensors.h"
#include "kernels/types.h"

namespace dex {

at::ScalarType scalar_type(StoredType type);
at::ScalarType scalar_type(Dtype dtype);

at::Tensor view_of(const StoredTensor& stored);  // no copy: valid as long as the file is open
// no copy: contiguous CPU tensors, valid as long as the tensor
StoredTensor stored_view(const at::Tensor& tensor);

// The tensor `name` as stored, a view of the file. Error(io) naming it where its shape, type or a
// value (NaN) is wrong.
at::Tensor stored_tensor(const WeightFile& file, const std::string& name,
                         const std::vector<std::int64_t>& shape);
// The same converted to `dtype`, own memory.
at::Tensor load_tensor(const WeightFile& file, const std::string& name,
                       const std::vector<std::int64_t>& shape, Dtype dtype);

}  // namespace dex
