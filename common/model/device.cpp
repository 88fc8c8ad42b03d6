#include "common/model/device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "common/base/error.h"

namespace dex {
namespace {

constexpr auto kGpu = at::DeviceType::CUDA;

c10::impl::VirtualGuardImpl gpus() { return c10::impl::VirtualGuardImpl(kGpu); }

}  // namespace

int gpu_count() { return c10::impl::hasDeviceGuardImpl(kGpu) ? int(gpus().deviceCount()) : 0; }

at::Device choose_device(const std::string& asked, int local_rank) {
  const int count = asked == "cpu" ? 0 : gpu_count();
  if (asked == "cpu" || (asked == "auto" && count == 0)) return at::kCPU;
  require(count > 0, ExitCode::usage, "--device is {}, but {}", asked,
          c10::impl::hasDeviceGuardImpl(kGpu)
              ? "no GPU is seen here"
              : "this program was built without CUDA, so it sees no GPU");
  require(count == 1 || local_rank < count, ExitCode::usage,
          "--device is {}, but process {} of this machine has no GPU: {} are seen; --device cpu "
          "goes without",
          asked, local_rank, count);
  const at::Device device(kGpu, c10::DeviceIndex(count == 1 ? 0 : local_rank));
  gpus().setDevice(device);
  return device;
}

void synchronize(at::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

cuda::Stream stream_of(at::Device device) {
  const auto stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  return static_cast<cuda::Stream>(stream.native_handle());
}

}  // namespace dex
