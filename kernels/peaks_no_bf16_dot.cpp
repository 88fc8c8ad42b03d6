#include "kernels/peaks.h"

namespace dex {
double cpu::bf16_dot_rate(Workers&) { return 0; }
}  // namespace dex
