// Functions whose bits are the same on the host, in the emulator and on a GPU: made of + * / fmaf,
// square root and integer moves, all correctly rounded everywhere as long as no compiler fuses a
// multiply and an add on its own (-fmad=false,
// -ffp-contract=off). CUDA's expf, logf and rsqrtf are approximations of its own.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/cuda/gpu.h"

namespace dex::gpu {

// e^x within 1.01 ulp (0.75 below 2^-126); overflow is infinity, NaN stays NaN.
__host__ __device__ inline float exp_of(float x) {
  const float bounded = x > 90.0f ? 90.0f : x < -105.0f ? -105.0f : x;
  // Adding 1.5 * 2^23 leaves the nearest integer of x / ln 2 in the low bits.
  const float shifter = 12582912.0f, shifted = fmaf(bounded, 0x1.715476p+0f, shifter);
  const std::uint32_t n = bits_as<std::uint32_t>(shifted) - bits_as<std::uint32_t>(shifter);
  const float whole = shifted - shifter;
  // x - whole ln 2, |r| <= ln 2 / 2
  const float r = fmaf(whole, -0x1.7f7d1cp-20f, fmaf(whole, -0x1.62e4p-1f, bounded));
  float p = 0x1.6a2416p-10f;  // (e^r - 1 - r) / r^2, error 3e-9 of e^r
  p = fmaf(p, r, 0x1.1239f2p-7f);
  p = fmaf(p, r, 0x1.5558f2p-5f);
  p = fmaf(p, r, 0x1.555492p-3f);
  p = fmaf(p, r, 0x1.fffffcp-2f);
  const float e = fmaf(r * r, p, r) + 1.0f;
  // 2^n in two factors: one could leave the range of normal numbers.
  const std::uint32_t half = std::uint32_t(std::int32_t(n) >> 1);
  return e * bits_as<float>((half + 127u) << 23) * bits_as<float>((n - half + 127u) << 23);
}

// ln x within 0.88 ulp; -infinity at 0, NaN below.
__host__ __device__ inline float log_of(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? bits_as<float>(0xff800000u) : bits_as<float>(0x7fc00000u);
  if (x == bits_as<float>(0x7f800000u)) return x;
  const bool subnormal = x < 0x1p-126f;
  const std::uint32_t bits = bits_as<std::uint32_t>(subnormal ? x * 0x1p+23f : x);
  // x = m 2^n with m in [sqrt(1/2), sqrt(2)).
  const std::uint32_t above = bits - 0x3f3504f3u;
  const std::int32_t n = std::int32_t(above) >> 23;
  const float m = bits_as<float>((above & 0x7fffffu) + 0x3f3504f3u);
  const float whole = float(n - (subnormal ? 23 : 0)), f = m - 1.0f, f2 = f * f;
  float p = -0x1.38c0f2p-4f;  // (ln(1 + f) - f + f^2 / 2) / f^3, error 6e-9 of ln(1 + f)
  p = fmaf(p, f, 0x1.056474p-3f);
  p = fmaf(p, f, -0x1.0d876cp-3f);
  p = fmaf(p, f, 0x1.22d910p-3f);
  p = fmaf(p, f, -0x1.5471f4p-3f);
  p = fmaf(p, f, 0x1.99a010p-3f);
  p = fmaf(p, f, -0x1.000228p-2f);
  p = fmaf(p, f, 0x1.555554p-2f);
  const float tail = fmaf(f2, fmaf(f, p, -0.5f), whole * 0x1.7f7d1cp-20f);
  return fmaf(whole, 0x1.62e4p-1f, f + tail);
}

// 1 / sqrt(x), two roundings.
__host__ __device__ inline float reciprocal_sqrt(float x) { return 1.0f / sqrtf(x); }

}  // namespace dex::gpu
