// Whether stored numbers are numbers.
#pragma once
#include "common/base/safetensors.h"

namespace dex {

bool all_finite(const StoredTensor& tensor);  // no NaN and no infinity among its values

}  // namespace dex
