// The shared memory that a launch asks for, on a device and on the emulator.
#pragma once
#include <cstddef>
#include <mutex>
#include <set>
#include <utility>

namespace dex::gpu {

// Whether a launch asks for more than 48 KiB. A kernel's static variables count there as well, and
// a branch's even where it is not taken: so every launch with dynamic memory asks.
constexpr bool opts_in(std::size_t dynamic_shared_bytes) { return dynamic_shared_bytes > 0; }

// Which kernels have their memory on which devices. Asking takes several calls of CUDA's, beside
// launches that come by the thousand; what was set holds for every host thread.
class OptedIn {
 public:
  // 0 where the kernel has it there, or what ask() returns: 0 once it has it, else an error number.
  template <class Ask>
  int once(const void* kernel, int device, const Ask& ask) {
    const std::lock_guard lock(mutex_);
    if (kernels_.contains({kernel, device})) return 0;
    if (const int error = ask()) return error;
    kernels_.insert({kernel, device});
    return 0;
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<const void*, int>> kernels_;
};

// Of this process.
inline OptedIn& opted_in() {
  static OptedIn one;
  return one;
}

}  // namespace dex::gpu
