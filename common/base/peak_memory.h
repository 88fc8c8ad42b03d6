#pragma once
#include <cstdint>

namespace dex {
std::int64_t peak_memory_bytes();  // resident, of this process
}
