#pragma once
#include <string>

namespace dex {

// What the CPU kernels run with on this machine, as "AVX3_DL, bf16 dot products, int8 dot
// products".
std::string instruction_sets();

}  // namespace dex
