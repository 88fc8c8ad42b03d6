#pragma once
#include <string>

#include "kernels/types.h"

namespace dex {
Dtype parse_dtype(const std::string& name);  // f32, bf16 or int8; else Error(usage)
}
