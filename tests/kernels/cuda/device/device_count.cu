#include "kernels/cuda/gpu.h"

namespace dex::test {
int device_count() { return gpu::device_count(); }
}  // namespace dex::test
