// What the tests of CUDA kernels share: memory on the device (or the emulator's), and runs in every schedule.
#pragma once
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "kernels/stream.h"
#include "kernels/types.h"

namespace dex::test {

// Elements on the device; read() waits for what was queued.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) {
    gpu::copy_to_device(memory_, values.data(), size_ * sizeof(T));
  }
  explicit OnDevice(std::size_t size) : size_(size), memory_(static_cast<T*>(gpu::device_alloc(size * sizeof(T)))) {}
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { gpu::device_free(memory_); }

  T* data() const { return memory_; }
  std::vector<T> read() const {
    gpu::synchronize();
    std::vector<T> values(size_);
    gpu::copy_to_host(values.data(), memory_, size_ * sizeof(T));
    return values;
  }

 private:
  std::size_t size_;
  T* memory_;
};

struct Scratch {
  OnDevice<unsigned char> memory;
  std::size_t bytes;
  explicit Scratch(std::size_t bytes) : memory(bytes), bytes(bytes) {}
  cuda::Scratch get() const { return {memory.data(), bytes}; }
};

template <class T>
std::vector<std::uint32_t> bits_of(const std::vector<T>& values) {
  std::vector<std::uint32_t> bits;
  for (const T& v : values) bits.push_back(std::bit_cast<std::uint32_t>(v));
  return bits;
}
inline std::vector<std::uint32_t> bits_of(const std::vector<std::uint16_t>& v) { return {v.begin(), v.end()}; }
inline std::vector<std::uint32_t> bits_of(const std::vector<std::uint8_t>& v) { return {v.begin(), v.end()}; }

template <class T>
std::vector<T> part(const std::vector<T>& all, std::size_t begin, std::size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(begin + count)};
}

// What body() returns, a vector, which must have the same bits in every schedule, or in the first alone.
template <class Body>
auto in_schedules(bool all, const Body& body) {
  auto first = (gpu::use_schedule(0), body());
  for (int i = 1; all && i < gpu::schedules(); ++i) {
    const std::string name = gpu::use_schedule(i);
    INFO("schedule " << name);
    const bool same = bits_of(body()) == bits_of(first);
    REQUIRE(same);
  }
  gpu::use_schedule(0);
  return first;
}
template <class Body>
auto in_all_schedules(const Body& body) {
  return in_schedules(true, body);
}

inline std::vector<float> random_floats(std::size_t count, unsigned seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& v : values) v = normal(generator);
  return values;
}
inline std::vector<float> random_integers(std::size_t count, unsigned seed, int most) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(static_cast<int>(generator() % static_cast<unsigned>(2 * most + 1)) - most);
  return values;
}

inline std::vector<std::uint16_t> narrowed(const std::vector<float>& values) {
  std::vector<std::uint16_t> narrow;
  for (float v : values) narrow.push_back(gpu::to_bf16(v).u);
  return narrow;
}
inline float widened(std::uint16_t bits) { return gpu::to_float({bits}); }

// Values kept as dtype, on the device and as what they mean.
struct Kept {
  std::vector<float> values;
  OnDevice<unsigned char> memory;

  Kept(std::vector<float> from, Dtype dtype) : values(std::move(from)), memory(bytes_of(values, dtype)) {
    for (float& v : values)
      if (dtype == Dtype::bf16) v = gpu::to_float(gpu::to_bf16(v));
  }
  void* data() const { return memory.data(); }

  static std::vector<unsigned char> bytes_of(const std::vector<float>& values, Dtype dtype) {
    std::vector<unsigned char> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
    const auto copy = [&](const void* from) { std::memcpy(bytes.data(), from, bytes.size()); };
    if (dtype == Dtype::f32) copy(values.data());
    if (dtype == Dtype::bf16) copy(narrowed(values).data());
    if (dtype == Dtype::i8) {
      std::vector<signed char> small;
      for (float v : values) small.push_back(static_cast<signed char>(v));
      copy(small.data());
    }
    return bytes;
  }
};

}  // namespace dex::test
