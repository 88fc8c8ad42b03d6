#include "train/loss/ridge_start.h"

#include <ATen/ops/linalg_lstsq.h>

#include <catch2/catch.hpp>
#include <limits>

#include "tests/support/errors.h"
#include "train/loss/adapter_gradient.h"

using namespace dex;

namespace {

ModelConfig config_of(std::int64_t hidden) {
  ModelConfig config;
  config.hidden_size = hidden;
  config.rms_norm_eps = 1e-6f;
  return config;
}

}  // namespace

TEST_CASE("the ridge start is the least-squares solution") {
  at::manual_seed(5);
  const std::int64_t rows = 201, hidden = 12;
  const at::Tensor h = at::randn({rows, hidden}) * (1 + at::rand({rows, 1})),
                   last = at::randn({rows, hidden}) * 5;
  RidgeStart ridge(config_of(hidden), 1);
  ridge.add({h.slice(0, 0, 77)}, last.slice(0, 0, 77));  // in two parts: sums, not means
  ridge.add({h.slice(0, 77)}, last.slice(0, 77));
  CHECK(ridge.rows() == rows);
  const AdapterWeights w = ridge.solve()[0];

  // The same problem as one overdetermined system: [X; sqrt(30) I] A^T = [T; 0], solved by QR in
  // float64.
  const at::Tensor wide = h.to(at::kDouble), size = (wide.pow(2).mean(-1, true) + 1e-6).sqrt();
  const double c = 3 * std::get<0>(size.flatten().median(0)).item<double>();
  const at::Tensor y = last.to(at::kDouble),
                   target = c * y / (y.pow(2).mean(-1, true) + 1e-6).sqrt() - wide;
  const at::Tensor left = at::cat({wide / size, std::sqrt(30.0) * at::eye(hidden, at::kDouble)});
  const at::Tensor right = at::cat({target, at::zeros({hidden, hidden}, at::kDouble)});
  const at::Tensor a = std::get<0>(at::linalg_lstsq(left, right)).t();

  CHECK((w.down.slice(1, 0, hidden).to(at::kDouble) - a).norm().item<double>() <
        1e-5 * a.norm().item<double>());
  CHECK(w.down.slice(1, hidden).equal(-w.down.slice(1, 0, hidden)));
  CHECK(w.alpha.item<float>() == 1.0f);

  // And the adapter computes that map: silu(z) - silu(-z) = z.
  const AdapterTrace trace = adapter_forward(w, h, 1e-6f);
  CHECK(
      (trace.delta_RD.to(at::kDouble) - at::matmul(wide / size, a.t())).abs().max().item<double>() <
      1e-4);
}

TEST_CASE("all depths are solved in one pass, each on its own rows") {
  at::manual_seed(6);
  const at::Tensor a = at::randn({50, 8}), b = at::randn({50, 8}), last = at::randn({50, 8});
  RidgeStart both(config_of(8), 2), alone(config_of(8), 1);
  both.add({a, b}, last);
  alone.add({b}, last);
  CHECK(both.solve()[1].down.equal(alone.solve()[0].down));
  CHECK_FALSE(both.solve()[0].down.equal(both.solve()[1].down));
}

TEST_CASE("a ridge start without rows is refused") {
  test::check_refused(ExitCode::usage, {"supervised"}, [] { RidgeStart(config_of(8), 1).solve(); });
}

TEST_CASE("a ridge start over hidden states that are no numbers is refused") {
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    at::Tensor h = at::randn({20, 8}), last = at::randn({20, 8});
    (GENERATE(false, true) ? h : last)[3][4] = odd;
    RidgeStart ridge(config_of(8), 1);
    ridge.add({h}, last);
    test::check_refused(ExitCode::usage, {"ridge start", "no numbers"}, [&] { ridge.solve(); });
  }
}
