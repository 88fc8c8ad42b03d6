#pragma once
#include <cstdint>

namespace dex {
using Token = std::int32_t;  // an id of the tokenizer's vocabulary
}
