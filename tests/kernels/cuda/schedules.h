// What tests of CUDA kernels share. One body runs on the emulator, in many schedules, and on a
// device.
#pragma once
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/gpu.h"

namespace dex::test {

// Device memory for one test.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size)
      : size_(size), memory_(static_cast<T*>(gpu::device_alloc(size * sizeof(T)))) {}
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    gpu::copy_to_device(memory_, values.data(), size_ * sizeof(T));
  }
  ~DeviceArray() { gpu::device_free(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() const { return memory_; }
  // Waits for the kernels before it.
  std::vector<T> read() const {
    std::vector<T> values(size_);
    gpu::synchronize();
    gpu::copy_to_host(values.data(), memory_, size_ * sizeof(T));
    return values;
  }

 private:
  std::size_t size_;
  T* memory_;
};

// As long as it lives, the emulator runs only so many blocks at each end of a grid. For grids
// whose size is what matters: rows past these ends are not computed there.
class OnlyEnds {
 public:
  explicit OnlyEnds(int blocks) { gpu::run_ends(blocks); }
  ~OnlyEnds() { gpu::run_ends(0); }
  OnlyEnds(const OnlyEnds&) = delete;
  OnlyEnds& operator=(const OnlyEnds&) = delete;
};

// A launch that must start.
inline void require_launched(int error) {
  if (error != 0) throw std::runtime_error("launch: CUDA error " + std::to_string(error));
}

// Calls body() in every schedule there is; throws where the vector it returns has other bits than
// in the first one.
template <class Body>
auto in_every_schedule(Body body) {
  const std::string first_name = gpu::use_schedule(0);
  const auto first = body();
  for (int i = 1; i < gpu::schedules(); ++i) {
    const std::string name = gpu::use_schedule(i);
    const auto other = body();
    if (other.size() != first.size()) throw std::runtime_error("results of two sizes");
    for (std::size_t k = 0; k < first.size(); ++k)
      if (std::memcmp(&first[k], &other[k], sizeof first[k]) != 0)
        throw std::runtime_error("bits differ at " + std::to_string(k) + " of " +
                                 std::to_string(first.size()) + ": " + first_name + " against " +
                                 name);
  }
  gpu::use_schedule(0);
  return first;
}

// The results of a kernel of one block: `each` values a thread, at out[thread + threads * i].
template <class T>
std::vector<T> run_in_one_block(void (*kernel)(T*), unsigned threads, std::size_t each,
                                std::size_t dynamic_shared = 0) {
  return in_every_schedule([=] {
    const DeviceArray<T> out(std::vector<T>(threads * each, T{}));
    require_launched(gpu::launch(kernel, 1, threads, dynamic_shared, nullptr, out.get()));
    return out.read();
  });
}

// Calls body() so that ThreadSanitizer sees what blocks do to each other without atomics and
// fences.
template <class Body>
auto with_blocks_apart(Body body) {
  gpu::keep_blocks_apart();
  auto result = body();
  gpu::use_schedule(0);
  return result;
}

}  // namespace dex::test
