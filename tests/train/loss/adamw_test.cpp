#include "train/loss/adamw.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "train/loss/adapter_gradient.h"

using namespace dex;

namespace {

AdapterWeights random_weights(std::int64_t hidden, std::int64_t width) {
  return {.norm = at::randn({hidden}),
          .up = at::randn({width, hidden}),
          .up_bias = at::randn({width}),
          .down = at::randn({hidden, width}),
          .down_bias = at::randn({hidden}),
          .alpha = at::randn({})};
}

}  // namespace

TEST_CASE("AdamW follows its published update, number by number") {
  at::manual_seed(1);
  std::vector<AdapterWeights> weights{random_weights(3, 6)};
  const double decay = GENERATE(0.0, 0.1);
  AdamW optimizer(weights, {7}, decay);
  double w = weights[0].up[2][1].item<double>(), m = 0, v = 0;
  for (int step = 1; step <= 6; ++step) {
    const std::vector<AdapterWeights> gradients{random_weights(3, 6)};
    const double g = gradients[0].up[2][1].item<double>(), rate = 0.01 * step;
    optimizer.step(gradients, rate);
    w -= rate * decay * w;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    w -= rate * (m / (1 - std::pow(0.9, step))) /
         (std::sqrt(v / (1 - std::pow(0.999, step))) + 1e-8);
    CHECK(weights[0].up[2][1].item<double>() == Approx(w).epsilon(1e-5));
  }
  CHECK(optimizer.steps() == 6);
  CHECK(optimizer.moments().at("second.depth.7.up.weight")[2][1].item<double>() ==
        Approx(v).epsilon(1e-5));
}

TEST_CASE("the moments are float32 and named by depth") {
  std::vector<AdapterWeights> weights{random_weights(2, 4), random_weights(2, 4)};
  const AdamW optimizer(weights, {10, 20}, 0);
  const auto moments = optimizer.moments();
  CHECK(moments.size() == 24);
  for (const auto& [name, tensor] : moments) CHECK(tensor.scalar_type() == at::kFloat);
  CHECK(moments.contains("first.depth.20.alpha"));
}
