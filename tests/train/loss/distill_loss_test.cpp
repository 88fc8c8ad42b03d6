#include "train/loss/distill_loss.h"

#include <catch2/catch.hpp>

#include "common/model/config.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "train/loss/adapter_gradient.h"

using namespace dex;

namespace {

struct Fixture {
  test::TempDir dir;
  std::filesystem::path model =
      test::TinyModel{.layers = 1, .vocab = 61, .tied = false}.write(dir / "m");
  ModelConfig config = read_model_config(model);
  WeightFile file = WeightFile::open(model);
  Embedding embedding{config, file, Dtype::f32, WeightLayout::rows};
  // two rows have no token
  Head head{config, file, &embedding, 59, Dtype::f32, WeightLayout::rows};
  std::vector<at::Tensor> h;
  at::Tensor final;
  std::vector<AdapterWeights> weights;

  Fixture() {
    at::manual_seed(3);
    for (int k = 0; k < 2; ++k) {
      h.push_back(at::randn({23, config.hidden_size}) * 2);
      // an odd width on purpose
      AdapterWeights w = AdapterWeights::paper_start(config, 40, 9, k + 1);
      w.norm.add_(at::randn_like(w.norm) * 0.1);
      w.alpha.fill_(0.7f);
      weights.push_back(w);
    }
    // A teacher in the direction of both adapters: else the gates' gradients are sums that nearly
    // cancel, and a relative error of those measures nothing.
    final = at::randn({23, config.hidden_size}) + h[0] + h[1];
    for (std::size_t k = 0; k < 2; ++k)
      final = final + 3 * adapter_forward(weights[k], h[k], head.eps()).delta_RD;
  }

  std::vector<AdapterWeights> zeros() const {
    return {zeros_like(weights[0]), zeros_like(weights[1])};
  }
};

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x / (x.pow(2).mean(-1, true) + eps).sqrt() * weight;
}

// The formula of Appendix C.2 as it stands, in float64, differentiated by autograd.
at::Tensor reference_loss(const Fixture& f, const std::vector<std::vector<at::Tensor>>& p,
                          double tau, double global_rows) {
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
  const at::Tensor gamma = wide(f.head.norm_weight()), head = wide(f.head.matrix().plain());
  const double eps = f.head.eps();
  const at::Tensor teacher =
      at::log_softmax(at::matmul(rms_norm(wide(f.final), gamma, eps), head.t()) / tau, -1);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (std::size_t k = 0; k < p.size(); ++k) {
    const at::Tensor h = wide(f.h[k]);
    const at::Tensor inner = at::silu(at::matmul(rms_norm(h, p[k][0], eps), p[k][1].t()) + p[k][2]);
    const at::Tensor induced = h + p[k][5] * (at::matmul(inner, p[k][3].t()) + p[k][4]);
    const at::Tensor student =
        at::log_softmax(at::matmul(rms_norm(induced, gamma, eps), head.t()) / tau, -1);
    loss = loss + tau * tau * (teacher.exp() * (teacher - student)).sum();
  }
  return loss / double(p.size()) / global_rows;
}

std::vector<std::vector<at::Tensor>> double_leaves(const std::vector<AdapterWeights>& weights) {
  std::vector<std::vector<at::Tensor>> leaves;
  for (const AdapterWeights& w : weights) {
    leaves.emplace_back();
    for (const auto& [name, tensor] : w.named())
      leaves.back().push_back(tensor.to(at::kDouble).requires_grad_(true));
  }
  return leaves;
}

double relative_error(const at::Tensor& seen, const at::Tensor& wanted) {
  return ((seen.to(at::kDouble) - wanted).norm() / wanted.norm()).item<double>();
}

}  // namespace

TEST_CASE("the distillation gradient of every parameter is autograd's in float64") {
  const Fixture f;
  const double tau = GENERATE(1.0, 2.0);
  const std::int64_t chunk_rows = GENERATE(1, 7, 100);
  const DistillLoss loss(f.head, tau, chunk_rows * 59 * 4);
  auto gradients = f.zeros();
  const DistillResult result = loss.add_gradients(f.h, f.final, f.weights, 31, gradients);

  auto leaves = double_leaves(f.weights);
  const at::Tensor reference = reference_loss(f, leaves, tau, 31);
  reference.backward();
  CHECK((result.kl[0] + result.kl[1]) / 2 / 31 == Approx(reference.item<double>()).epsilon(1e-5));
  for (std::size_t k = 0; k < 2; ++k) {
    const auto named = gradients[k].named();
    for (std::size_t i = 0; i < named.size(); ++i) {
      INFO("depth " << k << ", " << named[i].first);
      CHECK(relative_error(named[i].second, leaves[k][i].grad()) < 1e-5);
    }
  }
}

TEST_CASE("gradients of micro-batches add up to those of the batch") {
  const Fixture f;
  const DistillLoss loss(f.head, 1.0);
  auto whole = f.zeros(), parts = f.zeros();
  loss.add_gradients(f.h, f.final, f.weights, 23, whole);
  for (const auto& [begin, end] : {std::pair{0, 5}, {5, 5}, {5, 23}})
    loss.add_gradients({f.h[0].slice(0, begin, end), f.h[1].slice(0, begin, end)},
                       f.final.slice(0, begin, end), f.weights, 23, parts);
  for (std::size_t k = 0; k < 2; ++k)
    for (std::size_t i = 0; i < 6; ++i)
      CHECK(relative_error(parts[k].named()[i].second, whole[k].named()[i].second.to(at::kDouble)) <
            1e-5);
}

TEST_CASE("agreements count the rows whose best token is the teacher's") {
  const Fixture f;
  auto gradients = f.zeros();
  const DistillResult result =
      DistillLoss(f.head, 1.0, 59 * 4 * 5).add_gradients(f.h, f.final, f.weights, 23, gradients);
  const auto best = [&](const at::Tensor& h) {
    return at::matmul(f.head.norm(h), f.head.matrix().plain().t()).argmax(-1);
  };
  for (std::size_t k = 0; k < 2; ++k) {
    const AdapterWeights& w = f.weights[k];
    const at::Tensor inner =
        at::silu(at::linear(rms_norm(f.h[k], w.norm, f.head.eps()), w.up, w.up_bias));
    const at::Tensor induced = f.h[k] + w.alpha * at::linear(inner, w.down, w.down_bias);
    CHECK(result.agreements[k] == best(induced).eq(best(f.final)).sum().item<std::int64_t>());
  }
}

TEST_CASE("a student that is the teacher has no loss and no gradient") {
  Fixture f;
  for (std::size_t k = 0; k < 2; ++k) {
    f.h[k] = f.final;
    f.weights[k].alpha.zero_();
  }
  auto gradients = f.zeros();
  const DistillResult result =
      DistillLoss(f.head, 1.0).add_gradients(f.h, f.final, f.weights, 23, gradients);
  CHECK(std::abs(result.kl[0]) < 1e-4);
  CHECK(result.agreements[0] == 23);
  CHECK(gradients[0].alpha.abs().item<float>() < 1e-5);
}

TEST_CASE("with bf16 compute the gradients stay float32 and near the float32 ones") {
  const Fixture f;
  const Embedding embedding(f.config, f.file, Dtype::bf16, WeightLayout::rows);
  const Head head(f.config, f.file, &embedding, 59, Dtype::bf16, WeightLayout::rows);
  auto narrow = f.zeros(), wide = f.zeros();
  DistillLoss(head, 1.0).add_gradients(f.h, f.final, f.weights, 23, narrow);
  DistillLoss(f.head, 1.0).add_gradients(f.h, f.final, f.weights, 23, wide);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(narrow[0].named()[i].second.scalar_type() == at::kFloat);
    INFO(narrow[0].named()[i].first);
    CHECK(relative_error(narrow[0].named()[i].second, wide[0].named()[i].second.to(at::kDouble)) <
          0.03);
  }
}
