// The device that launches go to: what it takes, and which kernels have opted in there.
#include <mutex>
#include <set>
#include <utility>

#include "kernels/emulator/block.h"

namespace dex::emulator {
namespace {

const Device* in_use = &kSmallest;

// Launches come from any thread.
std::mutex mutex;
std::set<std::pair<const void*, int>> opted_in;
int times = 0;

}  // namespace

void use(const Device& chosen) { in_use = &chosen; }
const Device& device_in_use() { return *in_use; }
int device_number() { return int(in_use - kDevices); }

int opt_in(const void* kernel) {
  const std::lock_guard lock(mutex);
  ++times;
  opted_in.insert({kernel, device_number()});
  return 0;
}

bool has_opted_in(const void* kernel) {
  const std::lock_guard lock(mutex);
  return opted_in.contains({kernel, device_number()});
}

int opt_ins() {
  const std::lock_guard lock(mutex);
  return times;
}

bool is_launchable(const dim3& grid, const dim3& size) {
  const auto threads = std::uint64_t{size.x} * size.y * size.z;
  return threads > 0 && threads <= kMaxThreads && size.z <= 64 && grid.x > 0 && grid.y > 0 &&
         grid.z > 0 && grid.x <= 0x7fffffff && grid.y <= 65535 && grid.z <= 65535;
}

}  // namespace dex::emulator
