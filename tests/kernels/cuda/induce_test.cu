#include "kernels/induce.h"

#include "tests/kernels/cuda/support.h"

namespace dex {
namespace {

TEST_CASE("induced rows agree with float64, in place too, and with themselves alone") {
  const int hidden = 40, width = 80, rows = 3;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const auto h = test::random_floats(rows * hidden, 1), norm = test::random_floats(hidden, 2),
               up_bias = test::random_floats(width, 3), down_bias = test::random_floats(hidden, 4);
    const test::Kept up(test::random_floats(width * hidden, 5, 0.2f), dtype),
        down(test::random_floats(hidden * width, 6, 0.2f), dtype);
    const test::DeviceArray<float> device_norm(norm), device_up_bias(up_bias),
        device_down_bias(down_bias);
    const auto induce = [&](const std::vector<float>& from, bool in_place) {
      return test::in_every_schedule([&] {
        const test::DeviceArray<float> device_h(from), y(from.size());
        const InduceRows p{.h = device_h.get(),
                           .norm = device_norm.get(),
                           .up = up.data(),
                           .up_bias = device_up_bias.get(),
                           .down = down.data(),
                           .down_bias = device_down_bias.get(),
                           .y = in_place ? device_h.get() : y.get(),
                           .rows = int(from.size()) / hidden,
                           .hidden = hidden,
                           .width = width,
                           .alpha = 0.7f,
                           .eps = 1e-5f,
                           .dtype = dtype};
        const test::Workspace workspace(cuda::induce_rows_workspace(p));
        REQUIRE(cuda::induce_rows(p, {workspace.memory.get(), workspace.bytes - 1}, nullptr) ==
                cuda::kTooSmall);
        REQUIRE(cuda::induce_rows(p, workspace.get(), nullptr) == 0);
        return (in_place ? device_h : y).read();
      });
    };
    const auto y = induce(h, false);
    CHECK(test::bits_of(induce(h, true)) == test::bits_of(y));
    for (int r = 0; r < rows; ++r) {
      CHECK(test::bits_of(induce(test::part(h, r * hidden, hidden), false)) ==
            test::bits_of(test::part(y, r * hidden, hidden)));
      double squares = 0;
      for (int i = 0; i < hidden; ++i) squares += double(h[r * hidden + i]) * h[r * hidden + i];
      std::vector<double> inner;
      for (int j = 0; j < width; ++j) {
        double z = up_bias[j];
        for (int i = 0; i < hidden; ++i)
          z += h[r * hidden + i] / std::sqrt(squares / hidden + 1e-5) * norm[i] *
               up.values[j * hidden + i];
        inner.push_back(z / (1 + std::exp(-z)));
      }
      for (int i = 0; i < hidden; ++i) {
        double add = down_bias[i];
        for (int j = 0; j < width; ++j) add += inner[j] * down.values[i * width + j];
        // bf16 rounds what enters each linear: 2^-9 of every term.
        CHECK(y[r * hidden + i] ==
              Approx(h[r * hidden + i] + 0.7 * add).margin(dtype == Dtype::f32 ? 1e-5 : 2e-2));
      }
    }
  }
  CHECK(cuda::induce_rows({}, {}, nullptr) == 0);
}

}  // namespace
}  // namespace dex
