// One definition of prefill, first token and decoding for every method, over a clock that only work
// moves.
#include <atomic>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/model/cpu_engine.h"
#include "decode/explorer/explorer.h"
#include "decode/explorer/transport_links.h"
#include "decode/methods/ar.h"
#include "decode/report.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

// One machine that everyone shares: the time is the work done so far, a second for a row in a
// layer.
class WorkClock final : public Clock {
 public:
  double seconds() const override { return work_; }
  void add(int rows_in_layers) { work_ += rows_in_layers; }

 private:
  std::atomic<int> work_ = 0;
};

class ClockedEngine final : public StageEngine {
 public:
  ClockedEngine(const Model& model, StageShare share, int layers, WorkClock& clock)
      : engine_(model, share, nullptr, std::make_shared<ThreadPool>(1)),
        layers_(layers),
        clock_(clock) {}

  void begin(int rows, const Limits& limits) override { engine_.begin(rows, limits); }
  at::Tensor embed(std::span<const Token> ids) override { return engine_.embed(ids); }
  void forward(at::Tensor& x, const RowLayout& layout) override {
    engine_.forward(x, layout);
    clock_.add(layout.rows() * layers_);
  }
  std::vector<ExitAnswer> read(const at::Tensor& h, const ExitQuestion& question) override {
    return engine_.read(h, question);
  }
  at::Tensor exit_rows(const at::Tensor& h, bool bare) override {
    return engine_.exit_rows(h, bare);
  }
  std::vector<RowSlices> look(const at::Tensor& rows, std::span<const ExitQuestion> questions,
                              HeadShare share) override {
    return engine_.look(rows, questions, share);
  }
  std::vector<ExitAnswer> answers(std::span<const RowSlices> parts,
                                  const ExitQuestion& question) override {
    return engine_.answers(parts, question);
  }

 private:
  CpuEngine engine_;
  int layers_;
  WorkClock& clock_;
};

DecodeResult explored(const Model& model, std::span<const Token> prompt, const Limits& limits,
                      WorkClock& clock) {
  const int K = model.depths.num_stages();
  const ExplorePlan plan{model.depths, {.rows = 4}, nullptr};
  auto peers = local_transports(K);
  EventQueue events;
  events.add(
      {.kind = Event::Kind::submit, .prompt = {prompt.begin(), prompt.end()}, .limits = limits});
  events.add({.kind = Event::Kind::stop});
  DecodeResult result;
  std::vector<std::jthread> threads;
  for (int k = 0; k < K; ++k)
    threads.emplace_back([&, k] {
      const int layers = model.depths.depth(k) - (k > 0 ? model.depths.depth(k - 1) : 0);
      ClockedEngine engine(model, {k, k + 1}, layers, clock);
      TransportLinks links(*peers[k], model.config.hidden_size);
      Explorer explorer(model, plan, k, engine, links, links, clock);
      if (k > 0) return explorer.run();
      explorer.lead(events, {}, [&](int, DecodeResult finished) { result = std::move(finished); });
    });
  threads.clear();
  return result;
}

DecodeResult plain(const Model& model, std::span<const Token> prompt, const Limits& limits,
                   WorkClock& clock) {
  const int layers = model.config.num_layers;
  return plain_decoder(model,
                       std::make_unique<ClockedEngine>(
                           model, StageShare{0, model.depths.num_stages()}, layers, clock),
                       clock)
      ->generate(prompt, limits, {});
}

}  // namespace

TEST_CASE("prefill ends when every stage has read the prompt, and with decoding is the whole") {
  constexpr int kLayers = 8;
  const test::TempDir dir;
  const auto path = test::TinyModel{.layers = kLayers, .max_positions = 400}.write(dir / "m");
  for (const int K : {1, 2, 4, 8}) {
    const Model model = Model::load(path, DepthSet::uniform(K, kLayers), Dtype::f32);
    for (const int size : {1, 2, 129, 300})  // none, one row, one chunk, several
      for (const int tokens : {1, 7}) {
        CAPTURE(K, size, tokens);
        const std::vector<Token> prompt(size, 5);
        const Limits limits{.max_tokens = tokens, .ignore_stop = true};
        const int prefill = (size - 1) * kLayers;  // but the last token

        WorkClock plain_clock;
        const DecodeResult p = plain(model, prompt, limits, plain_clock);
        CHECK(p.prefill_seconds == prefill);
        CHECK(p.first_token_seconds == prefill + kLayers);
        CHECK(p.prefill_seconds + p.decode_seconds() == prefill + tokens * kLayers);

        WorkClock clock;
        const DecodeResult e = explored(model, prompt, limits, clock);
        CHECK(e.ids() == p.ids());
        CHECK(e.prefill_seconds == prefill);
        CHECK(e.prefill_seconds + e.decode_seconds() == clock.seconds());
        CHECK(e.first_token_seconds >= prefill + kLayers);
        CHECK(e.first_token_seconds <= clock.seconds());
        if (tokens == 1) CHECK(e.first_token_seconds == clock.seconds());
      }
  }
}

TEST_CASE("a tally adds times and tokens up, and divides one by the other") {
  DecodeTally tally(DepthSet({2}, 4));
  DecodeResult text;
  text.tokens.resize(6);
  text.prefill_seconds = 2;
  text.first_token_seconds = 2.5;
  text.total_seconds = 5;  // 3 of decoding
  tally.add(text);
  text.tokens.resize(3);
  text.prefill_seconds = 1;
  text.first_token_seconds = 1.5;
  text.total_seconds = 4;  // 3 of decoding
  tally.add(text);
  const nlohmann::json json = tally.json();
  CHECK(json.at("prefill_seconds") == 3);
  CHECK(json.at("decode_seconds") == 6);
  CHECK(json.at("first_token_seconds") == 2);  // the mean of texts
  CHECK(json.at("tokens_per_second") == 1.5);
}

TEST_CASE("the end token that ends a text is not among the tokens that are handed on") {
  const test::TempDir dir;
  Model model = Model::load(test::TinyModel{}.write(dir / "m"), DepthSet({2}, 4), Dtype::f32);
  const std::vector<Token> prompt{3, 1, 4};
  const Limits free{.max_tokens = 12, .ignore_stop = true}, bound{.max_tokens = 12};
  const auto handed = [&](const Limits& limits) {
    std::vector<Token> ids;
    plain_decoder(model, 1)->generate(prompt, limits,
                                      [&](const CommittedToken& t) { ids.push_back(t.token); });
    return ids;
  };
  const std::vector<Token> all = handed(free);
  REQUIRE(all.size() == 12);
  model.stop_ids = {all[7]};
  const auto first = std::find(all.begin(), all.end(), all[7]);
  CHECK(handed(bound) == std::vector<Token>(all.begin(), first));
  CHECK(handed(free) == all);
}

}  // namespace dex
