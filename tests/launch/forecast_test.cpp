// What the trainer's evaluation and dex ead predict is what decoding takes.
#include <catch2/catch.hpp>

#include "decode/ead/ead.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "train/reports/evaluation.h"

using namespace dex;

TEST_CASE(
    "the rounds that training and EAD predict are those that full exploration takes on the same "
    "text") {
  const test::TempDir dir;
  const auto path = test::TinyModel{.layers = 6, .vocab = 41, .scale = 0.08f}.write(dir / "m");
  const Session session({.model = path, .depths = "2,3,5", .threads = 1});
  const Model rows = Model::load(path, DepthSet({2, 3, 5}, 6), Dtype::f32, WeightLayout::rows);
  const auto dex = dex_method({.expand = "full"}).make(session);
  EadReader reader(session);
  std::vector<Sample> samples;
  std::int64_t rounds = 0, tokens = 0;
  const std::vector<std::vector<Token>> prompts{{1, 2, 3}, {7}, {9, 30, 12, 5, 17}};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const DecodeResult result =
        dex->generate(prompts[i], {.max_tokens = 20 + int(i), .ignore_stop = true}, {});
    reader.read(int(i), prompts[i], result);
    Sample sample{.tokens = prompts[i], .supervised = std::vector<std::uint8_t>(prompts[i].size())};
    for (Token token : result.ids()) {
      sample.tokens.push_back(token);
      sample.supervised.push_back(1);
    }
    samples.push_back(sample);
    rounds += result.rounds;
    tokens += std::int64_t(result.tokens.size());
  }
  const std::vector<ExitSet> sets{{"none", {}}};
  const ExitScores scores = evaluate(rows, samples, sets, 2)[0];
  const EadShares shares = shares_of(reader.readings().front(), session.model().depths);
  CHECK(scores.rounds == rounds);
  CHECK(scores.rows == tokens);
  CHECK(scores.texts == 3);
  CHECK(shares.rounds == rounds);
  CHECK(shares.texts == 3);
  CHECK(rounds < 4 * tokens);  // or no exit was ever right and nothing is compared
  CHECK(shares.mean_stable == Approx(scores.stable_ead));
}
