// Explorers that share the head: each reads its ids of it for all exits, and nothing else changes.
#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <thread>

#include "common/base/error.h"
#include "common/model/cpu_engine.h"
#include "decode/explorer/explorer.h"
#include "decode/explorer/transport_links.h"
#include "decode/methods/ar.h"
#include "decode/methods/dex.h"
#include "decode/methods/local_explorers.h"
#include "decode/session.h"
#include "decode/verify.h"
#include "tests/support/breaking_model.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

std::vector<Token> random_prompt(int size, int vocab, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<Token> prompt;
  for (int i = 0; i < size; ++i) prompt.push_back(Token(engine() % std::uint64_t(vocab)));
  return prompt;
}

Adapters random_adapters(const Model& model, float scale) {
  Adapters adapters;
  const auto generator = at::detail::createCPUGenerator(5);
  const std::int64_t h = model.config.hidden_size, m = 2 * h;
  const auto draw = [&](std::vector<std::int64_t> shape) {
    return at::randn(shape, generator) * scale;
  };
  for (int k = 0; k + 1 < model.depths.num_stages(); ++k)
    adapters.push_back(
        std::make_unique<Adapter>(AdapterWeights{at::ones({h}), draw({m, h}), draw({m}),
                                                 draw({h, m}), draw({h}), at::ones({})},
                                  model.config.rms_norm_eps, model.dtype));
  adapters.push_back(nullptr);
  return adapters;
}

std::vector<LatticePolicy> policies() {
  return {{.expand = Expand::full},
          {.expand = Expand::full, .decs = false},
          {.rows = 1},
          {.rows = 6, .lookup = 4},
          {.rows = 16}};
}

// Everything that an answer decides: not ids and bits alone, but which exit proposed a token, when
// it was committed, and what was explored beside it.
void check_same_course(const DecodeResult& want, const DecodeResult& got) {
  CHECK(first_difference(want, got).value_or("equal") == "equal");
  CHECK(got.rounds == want.rounds);
  CHECK(got.rows == want.rows);
  CHECK(got.peak_rows == want.peak_rows);
  REQUIRE(got.tokens.size() == want.tokens.size());
  for (std::size_t i = 0; i < want.tokens.size(); ++i) {
    CHECK(got.tokens[i].branch == want.tokens[i].branch);
    CHECK(got.tokens[i].hop == want.tokens[i].hop);
    CHECK(got.tokens[i].round == want.tokens[i].round);
    CHECK(got.tokens[i].gap == want.tokens[i].gap);
  }
}

std::unique_ptr<Decoder> decoder(const Model& model, const Adapters& adapters,
                                 const LatticePolicy& policy, HeadUse head) {
  return dex_decoder(model, adapters, policy, 1, {}, nullptr, head);
}

}  // namespace

TEST_CASE("exploring with a shared head equals plain decoding and takes the whole head's course") {
  const test::TempDir dir;
  std::int64_t compared = 0;
  // fewer slices than explorers, as many ids as slices hold, and a part of a slice more
  for (const int vocab : {61, 2048, 3500}) {
    const auto path =
        test::TinyModel{.layers = 8, .vocab = vocab, .tied = vocab != 2048, .scale = 0.2f}.write(
            dir / std::to_string(vocab));
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8})
      for (const int K : {2, 3, 4, 8}) {
        const Model model = Model::load(path, DepthSet::uniform(K, 8), dtype);
        const int size = K == 3 ? 140 : 7;  // 140 rows cross a prefill chunk
        const auto prompt = random_prompt(size, vocab, std::uint64_t(size + K));
        const Limits limits{.max_tokens = 16, .ignore_stop = true};
        const DecodeResult want = plain_decoder(model, 2)->generate(prompt, limits, {});
        const Adapters adapters = random_adapters(model, 0.3f);
        for (const LatticePolicy& policy : policies()) {
          CAPTURE(vocab, name_of(dtype), K, int(policy.expand), policy.rows, policy.decs);
          const auto
              got = decoder(model, adapters, policy, HeadUse::shared)->generate(prompt, limits, {}),
              whole =
                  decoder(model, adapters, policy, HeadUse::whole)->generate(prompt, limits, {});
          REQUIRE(first_difference(want, got).value_or("equal") == "equal");
          check_same_course(whole, got);
          compared += std::int64_t(got.tokens.size());
        }
      }
  }
  WARN(compared << " tokens compared in ids and bits of the final logits");
}

TEST_CASE("a share of the head gives the bits that the whole head gives its ids") {
  const test::TempDir dir;
  ThreadPool pool(2);
  for (const int vocab : {61, 1025, 3500}) {
    const auto path = test::TinyModel{.layers = 1, .vocab = vocab}.write(dir / "m");
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8}) {
      const Model model = Model::load(path, DepthSet({}, 1), dtype);
      for (const int rows : {1, 3, 17}) {
        const at::Tensor normed =
            at::randn({rows, model.config.hidden_size}, at::detail::createCPUGenerator(rows));
        const at::Tensor whole = model.head->logits(normed, HeadShare::whole(vocab), pool);
        for (const int owners : {2, 3, 5})
          for (int part = 0; part < owners; ++part) {
            const HeadShare share = HeadShare::of(part, owners, vocab);
            CAPTURE(vocab, name_of(dtype), rows, owners, part);
            CHECK(at::equal(model.head->logits(normed, share, pool),
                            whole.narrow(1, share.first_id, share.ids)));
          }
      }
    }
  }
}

TEST_CASE("with a shared head, rows without numbers end a text where plain decoding ends it") {
  const test::TempDir dir;
  const auto path = dir / "m";
  const auto prompt = random_prompt(5, 2100, 3);
  const Limits limits{.max_tokens = 24, .ignore_stop = true};
  const auto break_at = [&](Token id) {
    test::TinyModel{.layers = 4, .vocab = 2100, .tied = false, .scale = 0.2f}.write(path);
    test::break_at(path, id);
  };
  const auto load = [&](int K) { return Model::load(path, DepthSet::uniform(K, 4), Dtype::f32); };
  break_at(-1);
  const Model sound = load(1);
  const auto text = plain_decoder(sound, 1)->generate(prompt, limits, {}).ids();
  for (const Token breaker : {prompt.back(), text[9]}) {
    break_at(breaker);
    const auto error_of = [&](Decoder& decoder) {
      std::vector<Token> seen;
      const auto error = test::error_of([&] {
        decoder.generate(prompt, limits,
                         [&](const CommittedToken& token) { seen.push_back(token.token); });
      });
      return std::pair(error ? std::string(error->what()) : "none", seen);
    };
    const Model whole = load(1);
    const auto want = error_of(*plain_decoder(whole, 1));
    CHECK(want.first.find("the model gives no numbers") == 0);
    for (const int K : {2, 3, 4}) {
      const Model broken = load(K);
      for (const LatticePolicy& policy : policies()) {
        CAPTURE(breaker, K, int(policy.expand), policy.rows);
        const auto shared = decoder(broken, {}, policy, HeadUse::shared);
        CHECK(error_of(*shared) == want);
        CHECK(error_of(*shared) == want);  // the decoder is as good as new
      }
    }
  }
  // ids that are only explored: adapters without numbers propose nothing, and change no bit
  break_at(-1);
  for (const int K : {2, 3, 4}) {
    const Model model = load(K);
    const Adapters adapters = random_adapters(model, 1e30f);
    for (const LatticePolicy& policy : policies()) {
      const auto got =
          decoder(model, adapters, policy, HeadUse::shared)->generate(prompt, limits, {});
      CHECK(got.ids() == text);
      for (const CommittedToken& token : got.tokens)
        CHECK((token.branch == K - 1 || token.branch == kDraft));
    }
  }
}

TEST_CASE("with a shared head, ids without a token are emitted by no explorer") {
  // a hole from the first slice into the third, and rows of the head past the last token
  constexpr int kAdded = 2 * kVocabSlice + 300, kRows = kAdded + 1200;
  const test::TempDir dir;
  const auto path =
      test::TinyModel{.layers = 4, .vocab = kRows, .scale = 0.2f}.write(dir / "model");
  test::write_byte_tokenizer(path);
  dir.write("model/added_tokens.json", fmt::format(R"({{"<|far|>": {}}})", kAdded));
  const auto prompt = random_prompt(4, test::kByteVocabulary, 8);
  const Limits limits{.max_tokens = 30, .ignore_stop = true};
  for (const int K : {2, 3, 4}) {
    const Model model = Model::load(path, DepthSet::uniform(K, 4), Dtype::f32);
    REQUIRE(model.vocab == kAdded + 1);
    REQUIRE(model.holes.size() == kAdded - test::kByteVocabulary);
    const DecodeResult want = plain_decoder(model, 1)->generate(prompt, limits, {});
    for (const LatticePolicy& policy : policies()) {
      CAPTURE(K, int(policy.expand), policy.rows);
      const auto got = decoder(model, {}, policy, HeadUse::shared)->generate(prompt, limits, {});
      check_same_course(decoder(model, {}, policy, HeadUse::whole)->generate(prompt, limits, {}),
                        got);
      CHECK(first_difference(want, got).value_or("equal") == "equal");
      for (const Token id : got.ids()) CHECK((id < test::kByteVocabulary || id == kAdded));
    }
  }
}

namespace {

enum class Step { none, exit_rows, look, answers };

// Counts ids that it reads of the head, and fails in a step when it has done that some times.
class WatchedEngine final : public StageEngine {
 public:
  WatchedEngine(const Model& model, int stage, Step fails = Step::none, int after = 0)
      : engine_(model, {stage, stage + 1}, nullptr, std::make_shared<ThreadPool>(1)),
        fails_(fails),
        left_(after) {}

  void begin(int rows, const Limits& limits) override { engine_.begin(rows, limits); }
  at::Tensor embed(std::span<const Token> ids) override { return engine_.embed(ids); }
  void forward(at::Tensor& x, const RowLayout& layout) override { engine_.forward(x, layout); }
  std::vector<ExitAnswer> read(const at::Tensor&, const ExitQuestion&) override {
    fail(ExitCode::bug, "the whole head is read");
  }
  at::Tensor exit_rows(const at::Tensor& h, bool bare) override {
    count(Step::exit_rows);
    return engine_.exit_rows(h, bare);
  }
  std::vector<RowSlices> look(const at::Tensor& rows, std::span<const ExitQuestion> questions,
                              HeadShare share) override {
    count(Step::look);
    ++looks;
    shares.insert({share.first_id, share.ids});
    most_rows = std::max(most_rows, int(rows.size(0)));
    return engine_.look(rows, questions, share);
  }
  std::vector<ExitAnswer> answers(std::span<const RowSlices> parts,
                                  const ExitQuestion& question) override {
    count(Step::answers);
    return engine_.answers(parts, question);
  }

  int looks = 0, most_rows = 0;
  std::set<std::pair<int, int>> shares;

 private:
  void count(Step step) {
    if (step == fails_ && left_-- == 0) fail(ExitCode::io, "the device is gone");
  }

  CpuEngine engine_;
  Step fails_;
  int left_;
};

ExplorePlan shared_plan(const Model& model) {
  return {.depths = model.depths, .policy = {.rows = 6}, .drafts = nullptr, .shared_head = true};
}

}  // namespace

TEST_CASE("each explorer reads its own ids once a round, for the rows of all exits") {
  const test::TempDir dir;
  const auto path = test::TinyModel{.layers = 4, .vocab = 3500}.write(dir / "m");
  const Model model = Model::load(path, DepthSet({1, 2}, 4), Dtype::f32);
  std::vector<std::unique_ptr<StageEngine>> engines;
  std::vector<WatchedEngine*> watched;
  for (int k = 0; k < 3; ++k) {
    auto engine = std::make_unique<WatchedEngine>(model, k);
    watched.push_back(engine.get());
    engines.push_back(std::move(engine));
  }
  const auto decoder = local_explorers(model, shared_plan(model), std::move(engines));
  const auto result =
      decoder->generate(random_prompt(5, 3500, 1), {.max_tokens = 12, .ignore_stop = true}, {});
  CHECK(result.peak_rows == 6);
  const std::vector<std::pair<int, int>> shares{{0, 1024}, {1024, 1024}, {2048, 1452}};
  for (int k = 0; k < 3; ++k) {
    CHECK(watched[k]->looks == result.rounds);
    CHECK(watched[k]->shares == std::set{shares[k]});
    CHECK(watched[k]->most_rows > result.peak_rows);
  }
}

TEST_CASE("an explorer that fails while the head is shared ends all of them with its error") {
  const test::TempDir dir;
  const auto path = test::TinyModel{.layers = 4, .vocab = 1500}.write(dir / "m");
  const Model model = Model::load(path, DepthSet::uniform(4, 4), Dtype::f32);
  const auto prompt = random_prompt(5, 1500, 1);
  const Limits limits{.max_tokens = 40, .ignore_stop = true};
  for (int broken = 0; broken < 4; ++broken)
    for (const Step step : {Step::exit_rows, Step::look, Step::answers})
      for (const int after : {0, 5}) {
        CAPTURE(broken, int(step), after);
        std::vector<std::unique_ptr<StageEngine>> engines;
        for (int k = 0; k < 4; ++k)
          engines.push_back(
              std::make_unique<WatchedEngine>(model, k, k == broken ? step : Step::none, after));
        const auto decoder = local_explorers(model, shared_plan(model), std::move(engines));
        test::check_refused(ExitCode::io, {"the device is gone"},
                            [&] { decoder->generate(prompt, limits, {}); });
        // it fails once, and then all are as good as new
        CHECK(first_difference(plain_decoder(model, 1)->generate(prompt, limits, {}),
                               decoder->generate(prompt, limits, {}))
                  .value_or("equal") == "equal");
      }
}

namespace {

// A wire that goes once one kind of message is waited for.
class TornLinks final : public AnswerBoard {
 public:
  TornLinks(TransportLinks& links, Transport& peers, int gathers)
      : links_(links), peers_(peers), left_(gathers) {}
  std::vector<Post> exchange(const Post& mine) override { return links_.exchange(mine); }
  at::Tensor gather(const at::Tensor& rows) override {
    if (left_-- == 0) {
      peers_.abort("the wire is cut", ExitCode::temporary);
      fail(ExitCode::temporary, "the wire is cut");
    }
    return links_.gather(rows);
  }

 private:
  TransportLinks& links_;
  Transport& peers_;
  int left_;
};

}  // namespace

TEST_CASE("a peer that is lost in the gather of exits' rows is lost to all") {
  const test::TempDir dir;
  const auto path = test::TinyModel{.layers = 6, .vocab = 1500}.write(dir / "m");
  const Model model = Model::load(path, DepthSet({2, 4}, 6), Dtype::f32);
  const ExplorePlan plan = shared_plan(model);
  const RealClock clock;
  for (const int lost : {0, 1, 2})
    for (const int gathers : {0, 7}) {
      auto peers = local_transports(3);
      EventQueue events;
      events.add({.kind = Event::Kind::submit,
                  .prompt = random_prompt(5, 1500, 1),
                  .limits = {.max_tokens = 60, .ignore_stop = true}});
      events.add({.kind = Event::Kind::stop});
      std::vector<std::optional<Error>> errors(3);
      std::vector<std::jthread> threads;
      for (int k = 0; k < 3; ++k)
        threads.emplace_back([&, k] {
          errors[std::size_t(k)] = test::error_of([&] {
            CpuEngine engine(model, {k, k + 1}, nullptr, std::make_shared<ThreadPool>(1));
            TransportLinks links(*peers[std::size_t(k)], model.config.hidden_size);
            TornLinks torn(links, *peers[std::size_t(k)], gathers);
            AnswerBoard& board = k == lost ? static_cast<AnswerBoard&>(torn) : links;
            Explorer explorer(model, plan, k, engine, links, board, clock);
            if (k > 0) return explorer.run();
            explorer.lead(events, {}, [](int, const DecodeResult&) {});
          });
        });
      threads.clear();
      for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->code() == ExitCode::temporary);
        CHECK(std::string(error->what()).find("the wire is cut") != std::string::npos);
      }
    }
}

TEST_CASE("the text of the session does not depend on --head") {
  const test::TempDir dir;
  const auto path = test::TinyModel{.layers = 6, .vocab = 2100, .scale = 0.2f}.write(dir / "m");
  const Session session({.model = path, .depths = "2,4", .threads = 3});
  const auto prompt = random_prompt(9, 2100, 4);
  const Limits limits{.max_tokens = 30, .ignore_stop = true};
  const DecodeResult want = session.plain()->generate(prompt, limits, {});
  CHECK_THROWS_AS(dex_method({.head = "half"}).check(DepthSet({2}, 4)), Error);
  for (const char* head : {"auto", "whole", "shared"})
    for (const char* rows : {"auto", "8"}) {
      const auto method = dex_method({.rows = rows, .head = head});
      CHECK(first_difference(want, method.make(session)->generate(prompt, limits, {}))
                .value_or("equal") == "equal");
    }
}

}  // namespace dex
