#include "train/reports/evaluation.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/explore/readiness.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_samples.h"

using namespace dex;

TEST_CASE("scores are what the exits' best tokens give when counted by hand") {
  const test::TempDir dir;
  const Model model = Model::load(test::TinyModel{.vocab = 11, .scale = 0.05f}.write(dir / "m"),
                                  DepthSet({1, 3}, 4), Dtype::f32, WeightLayout::rows);
  const auto samples = test::tiny_samples(9, 11, 4);
  const std::vector<ExitSet> sets{{"none", {}}};
  const ExitScores scores = evaluate(model, samples, sets, 2)[0];

  const HiddenRows hidden = TeacherStates(model).rows(samples);
  const auto logits = [&](const at::Tensor& h) {
    return at::matmul(model.head->norm(h), model.head->matrix().plain().t());
  };
  const at::Tensor reference = logits(hidden.final_RD).argmax(-1);
  const at::Tensor at1 = logits(hidden.h_RD[0]).argmax(-1).eq(reference),
                   at3 = logits(hidden.h_RD[1]).argmax(-1).eq(reference);
  const auto share = [](const at::Tensor& yes) {
    return yes.to(at::kDouble).mean().item<double>();
  };

  CHECK(scores.rows == reference.size(0));
  REQUIRE(scores.agreement.size() == 2);
  CHECK(scores.agreement[0] == Approx(share(at1)));
  CHECK(scores.agreement[1] == Approx(share(at3)));
  CHECK(share(at1) > 0.05);  // or the next lines compare nothing
  const double first = share(at1), second = share(at1.logical_not().logical_and(at3));
  CHECK(scores.hops == Approx(first * 1 + second * 2 + (1 - first - second) * 3));
  CHECK(scores.first_ead == Approx(first * 1 + second * 3 + (1 - first - second) * 4));
  const double both = share(at1.logical_and(at3)), later = share(at3) - both;
  CHECK(scores.stable_ead == Approx(both * 1 + later * 3 + (1 - both - later) * 4));
  CHECK(scores.s_x == Approx(4 / scores.stable_ead));
  std::int64_t answers = 0;
  for (const Sample& sample : samples)
    for (std::size_t i = 1; i < sample.tokens.size(); ++i)
      answers += sample.supervised[i] && (i == 1 || !sample.supervised[i - 1]);
  CHECK(scores.texts == answers);
  CHECK(scores.rounds > 3 * scores.texts);
  CHECK(scores.rounds <= 3 * scores.rows);
  // a masked proposal can only come to the reference sooner
  CHECK(scores.decs_hops <= scores.hops);
}

TEST_CASE("of equal logits the lowest id is the better one, for every exit and place") {
  const test::TempDir dir;
  const Model model = Model::load(
      test::TinyModel{.vocab = 12, .duplicate_rows = true, .scale = 0.05f}.write(dir / "m"),
      DepthSet({1, 2, 3}, 4), Dtype::f32, WeightLayout::rows);
  const auto samples = test::tiny_samples(9, 12, 4);
  const std::vector<ExitSet> sets{{"none", {}}};
  const ExitScores scores = evaluate(model, samples, sets, 2)[0];

  const HiddenRows hidden = TeacherStates(model).rows(samples);
  std::vector<at::Tensor> logits;
  for (const at::Tensor& h : hidden.h_RD)
    logits.push_back(at::matmul(model.head->norm(h), model.head->matrix().plain().t()));
  logits.push_back(at::matmul(model.head->norm(hidden.final_RD), model.head->matrix().plain().t()));
  std::int64_t first = 0, decs = 0, odd = 0;
  for (std::int64_t row = 0; row < scores.rows; ++row) {
    std::vector<std::vector<Token>> ranked;
    for (std::size_t k = 0; k < logits.size(); ++k) {
      std::vector<Token> ids(12);
      std::iota(ids.begin(), ids.end(), 0);
      const at::Tensor of_row = logits[k][row].contiguous();
      std::stable_sort(ids.begin(), ids.end(), [&](Token a, Token b) {
        return of_row.data_ptr<float>()[a] > of_row.data_ptr<float>()[b];
      });
      odd += ids.front() % 2;  // the second of a pair is never the best
      ids.resize(k + 1 < logits.size() ? k + 1 : 1);
      ranked.push_back(std::move(ids));
    }
    const Readiness ready = readiness(ranked);
    first += ready.first + 1;
    decs += ready.decs_branch + 1;
  }
  CHECK(odd == 0);
  CHECK(scores.hops == Approx(double(first) / double(scores.rows)));
  CHECK(scores.decs_hops == Approx(double(decs) / double(scores.rows)));
  CHECK(decs < first);  // or the second places are not looked at
}

TEST_CASE("scores survive their JSON form") {
  const ExitScores scores{.rows = 7,
                          .agreement = {0.25, 0.5},
                          .first_ead = 1.5,
                          .stable_ead = 2.5,
                          .hops = 2,
                          .decs_hops = 1.75,
                          .texts = 2,
                          .rounds = 14,
                          .s_x = 1.5};
  const ExitScores back = scores_of(to_json(scores));
  CHECK(back.rows == 7);
  CHECK(back.agreement == scores.agreement);
  CHECK(back.decs_hops == 1.75);
  CHECK(back.texts == 2);
  CHECK(back.rounds == 14);
  CHECK(back.s_x == 1.5);
  CHECK(to_json(scores)["rounds_per_token"] == 2.0);
  CHECK(score_table({{"none", scores}}, {10, 20}).find("agree @20") != std::string::npos);
}
