#include <cuda_runtime_api.h>

#include "common/base/error.h"
#include "common/model/device.h"

namespace dex {

std::string gpu_identity(at::Device device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device.index());
  require(error == cudaSuccess, ExitCode::bug, "GPU {}: {}", device.index(),
          cudaGetErrorString(error));
  std::string digits;
  for (const char byte : properties.uuid.bytes)
    digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return digits;
}

}  // namespace dex
