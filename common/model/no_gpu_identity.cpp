#include "common/base/error.h"
#include "common/model/device.h"

namespace dex {

std::string gpu_identity(at::Device) {
  fail(ExitCode::bug, "this program was built without CUDA, so it sees no GPU");
}

}  // namespace dex
