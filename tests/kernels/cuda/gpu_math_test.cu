#include "kernels/cuda/gpu_math.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/kernels/cuda/schedules.h"

using namespace dex;
using namespace dex::test;

namespace {

// Every sign and exponent with `each` mantissas, the ends among them.
std::vector<float> all_ranges(unsigned each) {
  std::vector<float> values;
  for (std::uint32_t top = 0; top < 512; ++top)
    for (std::uint32_t i = 0; i < each; ++i) {
      const std::uint32_t mantissa = i == 0 ? 0u : i == 1 ? 0x7fffffu : i * 2654435761u >> 9;
      values.push_back(gpu::bits_as<float>(top << 23 | mantissa));
    }
  return values;
}

// Distance from what is right, in units of the last place of a float.
double ulps(float seen, double wanted) {
  if (std::abs(wanted) > double(std::numeric_limits<float>::max()) * (1 + 0x1p-25))
    return std::isinf(seen) && (seen > 0) == (wanted > 0) ? 0 : 1e9;
  if (double(seen) == wanted) return 0;
  int exponent;
  std::frexp(wanted, &exponent);
  const double error =
      std::abs(double(seen) - wanted) / std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::isnan(error) ? 1e9 : error;
}

__global__ void evaluate(const float* x, float* y, int count) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  y[3 * i] = gpu::exp_of(x[i]);
  y[3 * i + 1] = gpu::log_of(x[i]);
  y[3 * i + 2] = gpu::reciprocal_sqrt(x[i]);
}

}  // namespace

TEST_CASE("exp and log are within their error in all ranges of exponents") {
  double exp_error = 0, tiny_exp_error = 0, log_error = 0;
  for (const float x : all_ranges(2000)) {
    if (std::isnan(x)) continue;
    const double e = std::exp(double(x));
    double& worst = e < 0x1p-126 ? tiny_exp_error : exp_error;
    worst = std::max(worst, ulps(gpu::exp_of(x), e));
    if (x > 0) log_error = std::max(log_error, ulps(gpu::log_of(x), std::log(double(x))));
  }
  // Results cover few arguments of the above.
  for (float x = -105; x < 90; x += 1.0f / 512) {
    const double e = std::exp(double(x));
    double& worst = e < 0x1p-126 ? tiny_exp_error : exp_error;
    worst = std::max(worst, ulps(gpu::exp_of(x), e));
  }
  CHECK(exp_error <= 1.01);
  CHECK(tiny_exp_error <= 0.75);
  CHECK(log_error <= 0.88);
}

TEST_CASE("exp and log at the ends") {
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(gpu::exp_of(0) == 1);
  CHECK(gpu::exp_of(inf) == inf);
  CHECK(gpu::exp_of(-inf) == 0);
  CHECK(std::isnan(gpu::exp_of(nan)));
  CHECK(gpu::log_of(1) == 0);
  CHECK(gpu::log_of(0) == -inf);
  CHECK(gpu::log_of(-0.0f) == -inf);
  CHECK(gpu::log_of(inf) == inf);
  CHECK(std::isnan(gpu::log_of(-1)));
  CHECK(std::isnan(gpu::log_of(nan)));
}

TEST_CASE("a kernel computes the bits the host computes") {
  const auto x = all_ranges(8);
  const auto y = in_every_schedule([&] {
    const DeviceArray<float> from(x), to(3 * x.size());
    require_launched(gpu::launch(evaluate, unsigned(x.size() + 127) / 128, 128, 0, nullptr,
                                 from.get(), to.get(), int(x.size())));
    return to.read();
  });
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float wanted[] = {gpu::exp_of(x[i]), gpu::log_of(x[i]), gpu::reciprocal_sqrt(x[i])};
    for (std::size_t k = 0; k < 3; ++k) {
      // their signs and payloads differ
      if (std::isnan(wanted[k]) && std::isnan(y[3 * i + k])) continue;
      REQUIRE(gpu::bits_as<std::uint32_t>(y[3 * i + k]) == gpu::bits_as<std::uint32_t>(wanted[k]));
    }
  }
}
