#include "kernels/peaks.h"

namespace dex {
double cpu::bf16_dot_rate(ThreadPool&) { return 0; }
}  // namespace dex
