// What the kernel tests share: random rows, float64 references' tolerances, and a run per
// instruction set.
#pragma once
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/row_ops.h"
#include "tests/kernels/reference.h"

namespace dex::test {

// The one table of tolerances: |got - want| <= relative * scale, where scale is the size of what
// was summed.
inline double tolerance(Dtype dtype) { return dtype == Dtype::f32 ? 2e-6 : 6e-3; }

// Round to nearest even, spelled out.
inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return std::uint16_t(bits >> 16 | 0x40);
  const std::uint32_t low = bits & 0xffff, high = bits >> 16;
  const bool up = low > 0x8000 || (low == 0x8000 && (high & 1));
  return std::uint16_t(high + (up ? 1 : 0));
}
inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t(bits) << 16);
}

// Values kept as dtype: `memory` is what a kernel reads, `values` what it means.
struct Stored {
  std::vector<float> values;
  std::vector<std::uint16_t> narrow;
  const void* memory() const {
    return narrow.empty() ? static_cast<const void*>(values.data()) : narrow.data();
  }
  void* memory() { return narrow.empty() ? static_cast<void*>(values.data()) : narrow.data(); }
};

inline Stored stored(std::vector<float> values, Dtype dtype) {
  Stored s{std::move(values), {}};
  if (dtype == Dtype::f32) return s;
  for (float& v : s.values) {
    s.narrow.push_back(to_bf16(v));
    v = from_bf16(s.narrow.back());
  }
  return s;
}

inline std::vector<std::uint32_t> bits_of(const float* values, std::size_t count) {
  std::vector<std::uint32_t> bits(count);
  for (std::size_t i = 0; i < count; ++i) bits[i] = std::bit_cast<std::uint32_t>(values[i]);
  return bits;
}
inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  return bits_of(values.data(), values.size());
}

// Runs body once for every instruction set this machine has and the kernels were built for.
inline void on_every_target(const std::function<void()>& body) {
  for (std::int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    hwy::GetChosenTarget().Update(targets & -targets);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace dex::test
