#include "common/base/dtype.h"

#include "common/base/error.h"

namespace dex {

Dtype parse_dtype(const std::string& name) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8})
    if (name == name_of(dtype)) return dtype;
  fail(ExitCode::usage, "--dtype is \"{}\", wanted f32, bf16 or int8", name);
}

}  // namespace dex
