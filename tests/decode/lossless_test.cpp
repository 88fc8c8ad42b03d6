// Depth exploration gives plain decoding's ids and the bits of its final logits, whatever explores.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/explore/readiness.h"
#include "common/model/cpu_engine.h"
#include "decode/ead/ead.h"
#include "decode/explorer/explorer.h"
#include "decode/explorer/transport_links.h"
#include "decode/methods/ar.h"
#include "decode/methods/dex.h"
#include "decode/methods/lookup.h"
#include "decode/verify.h"
#include "tests/support/breaking_model.h"
#include "tests/support/byte_tokenizer.h"
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
  // drafts beside the exits: all that fit, and as many as cheap and dear rows are worth
  all.push_back({.rows = 8, .lookup = 4});
  for (const double dear : {1.5, 8.0})
    all.push_back({.rows = 16,
                   .lookup = 8,
                   .costs = std::make_shared<const RowCosts>(
                       std::vector<RowCosts::Point>{{1, 1.0}, {8, dear}})});
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

TEST_CASE(
    "drafts alone equal plain decoding, and bring several tokens a round where text repeats") {
  const test::TempDir dir;
  const auto path = test::TinyModel{.layers = 4, .vocab = 61, .scale = 0.2f}.write(dir / "model");
  for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8}) {
    const Model model = Model::load(path, DepthSet({2}, 4), dtype);
    std::vector<Token> prompt = random_prompt(20, 61, 9);
    for (int i = 0; i < 60; ++i) prompt.push_back(prompt[std::size_t(i)]);
    const Limits limits{.max_tokens = 100, .ignore_stop = true};
    const DecodeResult want = plain_decoder(model, 1)->generate(prompt, limits, {});
    for (const int lookup : {1, 4, 8})
      for (const int rows : {1, 2, 9}) {
        const LatticePolicy policy{.rows = rows, .width = 1, .lookup = lookup};
        const DecodeResult got = lookup_decoder(model, policy, 2)->generate(prompt, limits, {});
        CAPTURE(name_of(dtype), lookup, rows);
        REQUIRE(first_difference(want, got).value_or("equal") == "equal");
        // greedy text of a small random model runs in a circle
        if (lookup == 8 && rows == 9) CHECK(got.rounds < 70);
        if (rows == 1) CHECK(got.rounds == 100);
      }
  }
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
  const Session session({.model = path, .depths = "2,4,6", .threads = 2});
  for (const bool decs : {true, false}) {
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
    const auto dex = dex_method({.expand = "full", .no_decs = !decs}).make(session);
    CHECK(dex->generate(prompt, limits, {}).rounds == rounds);
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
  test::check_refused(ExitCode::io, {"the model gives no numbers", "depth 4", "position 2"}, [&] {
    dex_decoder(model, {}, {}, 1, {})->generate(random_prompt(3, 97, 2), {}, {});
  });
}

namespace {

// A model that breaks at one id, and what plain decoding says while it does not meet that.
struct Breaking {
  test::TempDir dir;
  std::filesystem::path path = dir / "m";
  std::vector<Token> prompt = random_prompt(5, 61, 3), text;
  Limits limits{.max_tokens = 24, .ignore_stop = true};

  Breaking() {
    break_at(-1);
    text = plain_decoder(load(1), 1)->generate(prompt, limits, {}).ids();
  }
  void break_at(Token id) const {
    test::TinyModel{.layers = 4, .vocab = 61, .tied = false, .scale = 0.2f}.write(path);
    test::break_at(path, id);
  }
  Model load(int K) const { return Model::load(path, DepthSet::uniform(K, 4), Dtype::f32); }
  bool knows(Token id) const {
    return std::count(text.begin(), text.end(), id) + std::count(prompt.begin(), prompt.end(), id) >
           0;
  }
  // Ids that the first of K exits offers behind committed tokens, but that are not of the text:
  // explored in every mode.
  std::vector<Token> wrong_branches(int K) const {
    const Session session({.model = path, .depths = DepthSet::uniform(K, 4).text(), .threads = 1});
    EadReader reader(session);
    reader.read(0, prompt, session.plain()->generate(prompt, limits, {}));
    std::vector<Token> wrong;
    const auto& rows = reader.readings().front().rows;
    for (std::size_t i = 0; i + K < rows.size(); ++i)
      if (!knows(rows[i].candidates.front())) wrong.push_back(rows[i].candidates.front());
    return wrong;
  }
};

}  // namespace

TEST_CASE("a row without numbers that is only explored changes no token and no bit") {
  Breaking model;
  for (int K = 1; K <= 4; ++K) {
    model.break_at(-1);
    // with one explorer nothing is explored: any id that is not met
    Token breaker = 0;
    while (K == 1 && model.knows(breaker)) ++breaker;
    if (K > 1) {
      const auto wrong = model.wrong_branches(K);
      REQUIRE_FALSE(wrong.empty());
      breaker = wrong.front();
    }
    CAPTURE(K, breaker);
    const DecodeResult sound =
        plain_decoder(model.load(1), 1)->generate(model.prompt, model.limits, {});
    CHECK(sound.ids() == model.text);
    model.break_at(breaker);
    const Model broken = model.load(K);
    const DecodeResult want = plain_decoder(broken, 1)->generate(model.prompt, model.limits, {});
    CHECK(first_difference(sound, want).value_or("equal") == "equal");
    for (const LatticePolicy& policy : policies()) {
      CAPTURE(int(policy.expand), policy.rows, policy.decs);
      const DecodeResult got =
          dex_decoder(broken, {}, policy, 1, {})->generate(model.prompt, model.limits, {});
      CHECK(first_difference(want, got).value_or("equal") == "equal");
    }
  }
}

TEST_CASE("where plain decoding meets a row without numbers, exploring ends with its error") {
  Breaking model;
  // the first one is read after the prompt's last token, which may be the one that breaks
  for (const int met : {-1, 0, 7}) {
    const Token breaker = met < 0 ? model.prompt.back() : model.text[met];
    const auto first = std::find(model.text.begin(), model.text.end(), breaker);
    const int sound = met < 0 ? 0 : int(first - model.text.begin()) + 1;
    const bool in_prompt = std::count(model.prompt.begin(), model.prompt.end(), breaker) > 0;
    if (met >= 0 && in_prompt) continue;
    model.break_at(breaker);
    CAPTURE(met, breaker, sound);
    const auto decoded = [&](Decoder& decoder, std::vector<Token>& seen) {
      const auto error = test::error_of([&] {
        decoder.generate(model.prompt, model.limits,
                         [&](const CommittedToken& token) { seen.push_back(token.token); });
      });
      REQUIRE(error);
      CHECK(error->code() == ExitCode::io);
      return std::string(error->what());
    };
    std::vector<Token> plain_text;
    const Model whole = model.load(1);
    const std::string want = decoded(*plain_decoder(whole, 1), plain_text);
    CHECK(want == fmt::format("the model gives no numbers: the logits at depth 4, position {} hold "
                              "NaN",
                              int(model.prompt.size()) - 1 + sound));
    CHECK(plain_text == std::vector<Token>(model.text.begin(), model.text.begin() + sound));
    for (int K = 1; K <= 4; ++K) {
      const Model broken = model.load(K);
      for (const LatticePolicy& policy : policies()) {
        CAPTURE(K, int(policy.expand), policy.rows, policy.decs);
        std::vector<Token> text;
        const auto decoder = dex_decoder(broken, {}, policy, 1, {});
        CHECK(decoded(*decoder, text) == want);
        CHECK(text == plain_text);
        text.clear();
        CHECK(decoded(*decoder, text) == want);  // the decoder is as good as new
      }
    }
  }
}

TEST_CASE("an adapter without numbers proposes nothing, and changes no bit") {
  const test::TempDir dir;
  const auto path = test::TinyModel{.layers = 6, .vocab = 41}.write(dir / "m");
  const auto prompt = random_prompt(5, 41, 3);
  const Limits limits{.max_tokens = 20, .ignore_stop = true};
  for (int K = 2; K <= 4; ++K) {
    const Model model = Model::load(path, DepthSet::uniform(K, 6), Dtype::f32);
    const DecodeResult want = plain_decoder(model, 1)->generate(prompt, limits, {});
    const Adapters adapters = random_adapters(model, 5, 1e30f);
    for (const LatticePolicy& policy : policies()) {
      CAPTURE(K, int(policy.expand), policy.rows, policy.decs);
      const DecodeResult got =
          dex_decoder(model, adapters, policy, 1, {})->generate(prompt, limits, {});
      CHECK(first_difference(want, got).value_or("equal") == "equal");
      for (const CommittedToken& token : got.tokens)
        CHECK((token.branch == K - 1 || (policy.lookup > 0 && token.branch == kDraft)));
    }
  }
}

TEST_CASE("ids without a token are emitted by no decoder, and everything up to one stays") {
  constexpr int kAdded = test::kByteVocabulary + 20, kRows = kAdded + 30;
  const test::TempDir dir;
  const auto path =
      test::TinyModel{.layers = 4, .vocab = kRows, .scale = 0.2f}.write(dir / "model");
  const auto has_token = [](Token id) { return id < test::kByteVocabulary || id == kAdded; };
  const Limits limits{.max_tokens = 30, .ignore_stop = true};
  const auto prompt = random_prompt(4, test::kByteVocabulary, 8);
  const auto decoded = [&](const Method& method, const std::string& depths) {
    const Session session({.model = path, .depths = depths, .threads = 1});
    return method.make(session)->generate(prompt, limits, {});
  };
  // ids in, ids out: every row may win, as it may with transformers
  const DecodeResult every = decoded(ar_method(), "");
  const auto bare = std::find_if_not(every.tokens.begin(), every.tokens.end(),
                                     [&](const CommittedToken& t) { return has_token(t.token); });
  REQUIRE(bare != every.tokens.end());
  CHECK(bare != every.tokens.begin());

  test::write_byte_tokenizer(path);
  write_file(path / "added_tokens.json", fmt::format(R"({{"<|far|>": {}}})", kAdded));
  const DecodeResult want = decoded(ar_method(), "");
  CHECK(std::equal(every.tokens.begin(), bare, want.tokens.begin(),
                   [](const auto& a, const auto& b) { return a.token == b.token; }));
  for (const CommittedToken& t : want.tokens) CHECK(has_token(t.token));
  for (const char* depths : {"", "2", "1,3", "1,2,3"})
    for (const ExploreOptions& options :
         {ExploreOptions{.expand = "full"}, ExploreOptions{.rows = "4"},
          ExploreOptions{.rows = "16", .width = 4096}})
      CHECK(first_difference(want, decoded(dex_method(options), depths)).value_or("equal") ==
            "equal");

  const Session session({.model = path, .depths = "1,2,3", .threads = 1});
  EadReader reader(session);
  reader.read(0, prompt, want);
  for (const EadRow& row : reader.readings().front().rows)
    for (const Token candidate : row.candidates) CHECK(has_token(candidate));
}

namespace {

// Explorers of stages that were each loaded alone, as processes of their own would have them.
class ExplorersApart {
 public:
  ExplorersApart(const std::filesystem::path& path, const DepthSet& depths, LatticePolicy policy)
      : plan_{depths, policy, nullptr} {
    const int K = depths.num_stages();
    for (int k = 0; k < K; ++k) {
      shares_.push_back(Model::load(path, depths, Dtype::f32, WeightLayout::panels, {k, k + 1},
                                    {.embedding = k == 0, .head = true}));
      CHECK((shares_.back().embedding != nullptr) == (k == 0));
      CHECK(shares_.back().stages.size() == 1);
    }
  }

  std::map<int, DecodeResult> run(EventQueue& events, const OnToken& on_token = {}) {
    const int K = plan_.depths.num_stages();
    auto peers = local_transports(K);
    std::map<int, DecodeResult> results;
    std::vector<std::jthread> threads;
    for (int k = 0; k < K; ++k)
      threads.emplace_back([&, k] {
        CpuEngine engine(shares_[k], {k, k + 1}, nullptr, std::make_shared<ThreadPool>(1));
        TransportLinks links(*peers[k], shares_[k].config.hidden_size);
        Explorer explorer(shares_[k], plan_, k, engine, links, links, clock_);
        if (k > 0) return explorer.run();
        explorer.lead(events, on_token,
                      [&](int sequence, DecodeResult r) { results[sequence] = std::move(r); });
      });
    threads.clear();
    return results;
  }

 private:
  RealClock clock_;
  ExplorePlan plan_;
  std::vector<Model> shares_;
};

Event submit(int sequence, std::vector<Token> prompt, int max_tokens) {
  return {.kind = Event::Kind::submit,
          .sequence = sequence,
          .prompt = std::move(prompt),
          .limits = {.max_tokens = max_tokens, .ignore_stop = true}};
}

}  // namespace

TEST_CASE("explorers that hold one stage each decode the texts that are submitted, in turn") {
  const test::TempDir dir;
  for (const bool tied : {false, true}) {
    const auto path =
        test::TinyModel{.layers = 6, .vocab = 41, .tied = tied}.write(dir / (tied ? "t" : "u"));
    const DepthSet depths({1, 3, 4}, 6);
    const Model whole = Model::load(path, depths, Dtype::f32);
    const auto plain = plain_decoder(whole, 1);
    for (const LatticePolicy& policy : policies()) {
      ExplorersApart apart(path, depths, policy);
      EventQueue events;
      for (int i = 0; i < 3; ++i) events.add(submit(i, random_prompt(1 + 70 * i, 41, i), 9 + i));
      events.add({.kind = Event::Kind::stop});
      const auto results = apart.run(events);
      REQUIRE(results.size() == 3);
      for (int i = 0; i < 3; ++i) {
        const DecodeResult want = plain->generate(random_prompt(1 + 70 * i, 41, i),
                                                  {.max_tokens = 9 + i, .ignore_stop = true}, {});
        CHECK(first_difference(want, results.at(i)).value_or("equal") == "equal");
      }
    }
  }
}

TEST_CASE("a cancelled text ends with a beginning of plain decoding's, and the next one follows") {
  const test::TempDir dir;
  const auto path = test::TinyModel{.layers = 6, .vocab = 41}.write(dir / "m");
  const DepthSet depths({2, 4}, 6);
  const Model whole = Model::load(path, depths, Dtype::f32);
  ExplorersApart apart(path, depths, {.expand = Expand::full});
  EventQueue events;
  events.add(submit(7, random_prompt(5, 41, 1), 200));
  events.add(submit(8, random_prompt(5, 41, 2), 200));
  events.add(submit(9, random_prompt(5, 41, 3), 6));
  int seen = 0;
  const auto results = apart.run(events, [&](const CommittedToken&) {
    if (++seen != 10) return;
    events.add({.kind = Event::Kind::cancel, .sequence = 7});
    events.add({.kind = Event::Kind::cancel, .sequence = 8});
    events.add({.kind = Event::Kind::stop});
  });
  CHECK(results.count(8) == 0);
  const DecodeResult& cut = results.at(7);
  CHECK(cut.finish_reason == "cancelled");
  CHECK(cut.tokens.size() >= 10);
  CHECK(cut.tokens.size() < 20);
  const auto plain = plain_decoder(whole, 1);
  const int size = cut.tokens.size();
  CHECK(plain->generate(random_prompt(5, 41, 1), {.max_tokens = size, .ignore_stop = true}, {})
            .ids() == cut.ids());
  CHECK(
      plain->generate(random_prompt(5, 41, 3), {.max_tokens = 6, .ignore_stop = true}, {}).ids() ==
      results.at(9).ids());
}

namespace {

// Goes on with a text behind whatever enters E_0 next; every third token of it is wrong.
class TextDrafts final : public Proposer {
 public:
  explicit TextDrafts(std::vector<Token> text) : text_(std::move(text)) {}

  void propose(const Lattice& lattice, std::vector<Proposal>& proposals) override {
    const int before = proposals.size();
    for (int i = 0; i < before; ++i)
      lay_block(i, lattice.node(proposals[i].parent).position + 2, proposals);
    if (lattice.queued()) lay_block(-1, lattice.tip_position() + 1, proposals);
  }

 private:
  void lay_block(int follows, std::size_t position, std::vector<Proposal>& proposals) const {
    for (int step = 0; step < 4 && position < text_.size(); ++step, ++position) {
      const Token token = (text_[position] + (position % 3 == 0)) % 41;
      proposals.push_back({.token = token, .source = kDraft, .p = 0.5, .follows = follows});
      follows = int(proposals.size()) - 1;
    }
  }

  std::vector<Token> text_;
};

}  // namespace

TEST_CASE("drafts in the wave, right and wrong ones, change rounds and no bit") {
  const test::TempDir dir;
  const auto path = test::TinyModel{.layers = 6, .vocab = 41, .scale = 0.2f}.write(dir / "m");
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8})
    for (const int K : {1, 2, 3}) {
      const Model model = Model::load(path, DepthSet::uniform(K, 6), dtype);
      const auto prompt = random_prompt(5, 40, 3);
      const Limits limits{.max_tokens = 40, .ignore_stop = true};
      const DecodeResult want = plain_decoder(model, 1)->generate(prompt, limits, {});
      std::vector<Token> text = prompt;
      for (const Token id : want.ids()) text.push_back(id);
      const DraftMaker drafts = [text] { return std::make_unique<TextDrafts>(text); };
      const LatticePolicy policy{.rows = 16};
      const auto without = dex_decoder(model, {}, policy, 1, {})->generate(prompt, limits, {}),
                 with = dex_decoder(model, {}, policy, 1, {}, drafts)->generate(prompt, limits, {});
      CAPTURE(name_of(dtype), K);
      CHECK(first_difference(want, with).value_or("equal") == "equal");
      CHECK(with.rounds < without.rounds);
    }
}

}  // namespace dex
