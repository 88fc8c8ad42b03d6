// Depth exploration gives plain decoding's ids and the bits of its final logits, whatever explores.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "common/base/error.h"
#include "common/explore/readiness.h"
#include "decode/decoder.h"
#include "decode/ead/ead.h"
#include "decode/verify.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

Adapters random_adapters(const Model& model, std::uint64_t seed, float scale) {
  Adapters adapters;
  const auto generator = at::detail::createCPUGenerator(seed);
  const std::int64_t h = model.config.hidden_size, m = 2 * h;
  const auto draw = [&](std::vector<std::int64_t> shape) {
    return at::randn(shape, generator) * scale;
  };
  for (int k = 0; k + 1 < model.depths.num_stages(); ++k) {
    const AdapterWeights w{at::ones({h}), draw({m, h}), draw({m}),
                           draw({h, m}),  draw({h}),    at::ones({})};
    adapters.push_back(std::make_unique<Adapter>(w, model.config.rms_norm_eps, model.dtype));
  }
  adapters.push_back(nullptr);
  return adapters;
}

std::vector<Token> random_prompt(int size, int vocab, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<Token> prompt;
  for (int i = 0; i < size; ++i) prompt.push_back(Token(engine() % std::uint64_t(vocab)));
  return prompt;
}

std::vector<LatticePolicy> policies() {
  std::vector<LatticePolicy> all{{.expand = Expand::full},
                                 {.expand = Expand::full, .decs = false},
                                 {.expand = Expand::full, .single_exit = true}};
  for (int rows : {1, 4, 16}) all.push_back({.rows = rows});
  return all;
}

}  // namespace

TEST_CASE("exploration equals plain decoding for every K, policy, dtype, adapter and family") {
  const test::TempDir dir;
  std::int64_t compared = 0, near_ties = 0;
  for (const char* family : {"llama", "qwen3"}) {
    const auto path =
        test::TinyModel{.family = family, .layers = 8, .vocab = 61, .scale = 0.2f}.write(dir /
                                                                                         family);
    for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8})
      for (int K : {1, 2, 3, 4, 8}) {
        const Model model = Model::load(path, DepthSet::uniform(K, 8), dtype);
        const auto plain = plain_decoder(model, 2);
        for (int size : {1, 7, 140}) {  // 140 rows cross a prefill chunk
          const auto prompt = random_prompt(size, 61, std::uint64_t(size + K));
          const Limits limits{.max_tokens = 24, .ignore_stop = true};
          const DecodeResult want = plain->generate(prompt, limits, {});
          for (const CommittedToken& t : want.tokens) near_ties += t.gap < 1e-3f;
          for (float scale : {-1.0f, 0.0f, 0.3f}) {  // none, zero, random adapters
            const Adapters adapters = scale < 0 ? Adapters{} : random_adapters(model, 5, scale);
            for (const LatticePolicy& policy : policies()) {
              CAPTURE(family, name_of(dtype), K, size, scale, int(policy.expand), policy.rows,
                      policy.decs);
              const DecodeResult got =
                  dex_decoder(model, adapters, policy, 1 + K % 2, {})->generate(prompt, limits, {});
              REQUIRE(first_difference(want, got).value_or("equal") == "equal");
              compared += std::int64_t(got.tokens.size());
            }
          }
        }
      }
  }
  WARN(compared
       << " tokens compared in ids and bits of the final logits; near ties among the plain ones: "
       << near_ties);
}

TEST_CASE("exact ties go to the lowest id in plain and explored decoding") {
  const test::TempDir dir;
  const auto path =
      test::TinyModel{.layers = 4, .vocab = 40, .duplicate_rows = true}.write(dir / "ties");
  for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8}) {
    const Model model = Model::load(path, DepthSet({1, 2, 3}, 4), dtype);
    const auto prompt = random_prompt(5, 40, 3);
    const Limits limits{.max_tokens = 64, .ignore_stop = true};
    const DecodeResult want = plain_decoder(model, 1)->generate(prompt, limits, {});
    for (const CommittedToken& t : want.tokens) {
      CHECK(t.token % 2 == 0);  // rows 2i and 2i + 1 of the head are equal
      CHECK(t.gap == 0);
    }
    for (const LatticePolicy& policy : policies())
      CHECK(first_difference(want,
                             dex_decoder(model, {}, policy, 1, {})->generate(prompt, limits, {}))
                .value_or("equal") == "equal");
  }
}

TEST_CASE("generation ends at the position limit, at an end token and at the cap alike") {
  const test::TempDir dir;
  const auto path =
      test::TinyModel{.layers = 4, .vocab = 30, .max_positions = 32}.write(dir / "limits");
  Model model = Model::load(path, DepthSet({1, 2}, 4), Dtype::f32);
  const auto prompt = random_prompt(30, 30, 1);
  const auto decoder = dex_decoder(model, {}, {.expand = Expand::full}, 1, {});
  const DecodeResult cut = decoder->generate(prompt, {.max_tokens = 100, .ignore_stop = true}, {});
  CHECK(cut.tokens.size() == 2);  // 30 + 2 = 32 positions
  CHECK(cut.finish_reason == "length");
  CHECK(decoder->generate(random_prompt(31, 30, 1), {.max_tokens = 9, .ignore_stop = true}, {})
            .tokens.size() == 1);
  CHECK_THROWS_WITH(decoder->generate(random_prompt(32, 30, 1), {}, {}),
                    Catch::Contains("32 tokens"));
  CHECK_THROWS_AS(decoder->generate({}, {}, {}), Error);
  CHECK_THROWS_AS(decoder->generate(std::vector<Token>{0, 30}, {}, {}), Error);
  CHECK(decoder->generate(prompt, {.max_tokens = 0}, {}).tokens.empty());

  const auto start = random_prompt(4, 30, 9);
  const DecodeResult whole =
      plain_decoder(model, 1)->generate(start, {.max_tokens = 20, .ignore_stop = true}, {});
  model.stop_ids = {whole.tokens[6].token};
  const DecodeResult want = plain_decoder(model, 1)->generate(start, {.max_tokens = 20}, {});
  const DecodeResult got = decoder->generate(start, {.max_tokens = 20}, {});
  CHECK(want.finish_reason == "stop");
  CHECK(want.stop_id == whole.tokens[6].token);
  CHECK(first_difference(want, got).value_or("equal") == "equal");
  CHECK(got.text_ids().size() + 1 == got.ids().size());
}

TEST_CASE("full-mode rounds are K plus the branches that a teacher-forced reading predicts") {
  const test::TempDir dir;
  const auto path = test::TinyModel{.layers = 8, .vocab = 23, .scale = 0.4f}.write(dir / "rounds");
  SessionOptions options{.model = path, .depths = "2,4,6", .expand = "full", .threads = 2};
  for (const bool decs : {true, false}) {
    options.no_decs = !decs;
    const Session session(options);
    EadReader reader(session);
    const auto prompt = random_prompt(6, 23, 4);
    const Limits limits{.max_tokens = 50, .ignore_stop = true};
    reader.read(0, prompt, session.plain()->generate(prompt, limits, {}));
    const auto& rows = reader.readings().front().rows;
    REQUIRE(rows.size() == 50);
    int rounds = 4, proposed_early = 0;
    for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
      const int branch = decs ? rows[i].ready.decs_branch : rows[i].ready.first;
      rounds += branch + 1;
      proposed_early += branch < 3;
    }
    CHECK(proposed_early > 0);
    CHECK(session.dex()->generate(prompt, limits, {}).rounds == rounds);
  }
}

TEST_CASE("tokens reach the caller in order as they are committed") {
  const test::TempDir dir;
  const Model model = Model::load(test::TinyModel{}.write(dir / "m"), DepthSet({2}, 4), Dtype::f32);
  std::vector<Token> seen;
  const auto result =
      dex_decoder(model, {}, {}, 1, {})
          ->generate(random_prompt(3, 97, 2), {.max_tokens = 12, .ignore_stop = true},
                     [&](const CommittedToken& t) { seen.push_back(t.token); });
  CHECK(seen == result.ids());
}

TEST_CASE("NaN weights end the job with the depth and the position") {
  const test::TempDir dir;
  Model model = Model::load(test::TinyModel{}.write(dir / "m"), DepthSet({2}, 4), Dtype::f32);
  model.stages[0].layers()[1].post_norm.fill_(std::numeric_limits<float>::quiet_NaN());
  test::check_refused(ExitCode::io, {"the model gives no numbers", "depth 2", "position"}, [&] {
    dex_decoder(model, {}, {}, 1, {})->generate(random_prompt(3, 97, 2), {}, {});
  });
}

}  // namespace dex
