// What the tests of our own kernels share beside memory and schedules: random rows, bits, and
// values kept as a type.
#pragma once
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/stream.h"
#include "kernels/types.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/kernels/reference.h"

namespace dex::test {

struct Workspace {
  DeviceArray<unsigned char> memory;
  std::size_t bytes;
  explicit Workspace(std::size_t bytes) : memory(bytes), bytes(bytes) {}
  cuda::Workspace get() const { return {memory.get(), bytes}; }
};

template <class T>
std::vector<std::uint32_t> bits_of(const std::vector<T>& values) {
  std::vector<std::uint32_t> bits;
  for (const T& v : values) bits.push_back(std::bit_cast<std::uint32_t>(v));
  return bits;
}
inline std::vector<std::uint32_t> bits_of(const std::vector<std::uint16_t>& v) {
  return {v.begin(), v.end()};
}
inline std::vector<std::uint32_t> bits_of(const std::vector<std::uint8_t>& v) {
  return {v.begin(), v.end()};
}

template <class T>
std::vector<T> part(const std::vector<T>& all, std::size_t begin, std::size_t count) {
  return {all.begin() + std::ptrdiff_t(begin), all.begin() + std::ptrdiff_t(begin + count)};
}

// in_every_schedule where `all`, else in the first: for what only repeats a case with other
// numbers.
template <class Body>
auto in_schedules(bool all, const Body& body) {
  if (all) return in_every_schedule(body);
  gpu::use_schedule(0);
  return body();
}

inline std::vector<float> random_integers(std::size_t count, unsigned seed, int most) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& v : values) v = float(int(generator() % unsigned(2 * most + 1)) - most);
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
  DeviceArray<unsigned char> memory;

  Kept(std::vector<float> from, Dtype dtype)
      : values(std::move(from)), memory(bytes_of(values, dtype)) {
    for (float& v : values)
      if (dtype == Dtype::bf16) v = gpu::to_float(gpu::to_bf16(v));
  }
  void* data() const { return memory.get(); }

  static std::vector<unsigned char> bytes_of(const std::vector<float>& values, Dtype dtype) {
    std::vector<unsigned char> bytes(values.size() * std::size_t(size_of(dtype)));
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
