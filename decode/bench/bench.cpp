#include "decode/bench/bench.h"

#include <algorithm>
#include <map>
#include <random>

#include "common/base/error.h"
#include "common/base/peak_memory.h"
#include "common/base/progress.h"
#include "decode/verify.h"
#include "kernels/peaks.h"

namespace dex {
namespace {

std::vector<BenchTest> tests_of(const BenchPlan& plan, const Model& model, const Methods& known) {
  const int vocab = model.vocab;
  auto contexts = plan.prompts;
  if (contexts.empty()) contexts.push_back(made_up_ids(plan.context + 1, vocab));
  std::vector<BenchTest> tests;
  const auto add = [&](const std::string& name, std::vector<std::vector<Token>> prompts,
                       int n_prompt, int n_gen) {
    const Method& method = known.named(name, "--methods names");
    tests.push_back({.method = name,
                     .is_reference = method.is_reference,
                     .explores = method.explores,
                     .prompts = std::move(prompts),
                     .n_prompt = n_prompt,
                     .n_gen = n_gen,
                     .tally = DecodeTally(method.depths(model.depths))});
  };
  for (const std::string& method : plan.methods)
    if (plan.prompt_tokens > 0)
      add(method, {made_up_ids(plan.prompt_tokens, vocab)}, plan.prompt_tokens, 0);
  for (const std::string& method : plan.methods)
    if (plan.tokens > 0) add(method, contexts, 0, plan.tokens);
  return tests;
}

std::vector<DecodeResult> run_once(Decoder& decoder, const BenchTest& test) {
  std::vector<DecodeResult> results;
  for (const auto& prompt : test.prompts)
    results.push_back(
        decoder.generate(prompt, {.max_tokens = std::max(1, test.n_gen), .ignore_stop = true}, {}));
  return results;
}

void count_in(BenchTest& test, const std::vector<DecodeResult>& results) {
  double seconds = 0;
  for (const DecodeResult& r : results) {
    seconds += test.n_gen > 0 ? r.decode_seconds() : r.first_token_seconds;
    test.tally.add(r);
  }
  test.seconds.push_back(seconds);
}

}  // namespace

void BenchPlan::check(const ModelConfig& model, const Methods& known) const {
  require(!methods.empty(), ExitCode::usage, "no method is given, wanted {}", known.described());
  for (const std::string& method : methods) {
    known.named(method, "--methods names");
    require(std::count(methods.begin(), methods.end(), method) == 1, ExitCode::usage,
            "--methods names {} twice", method);
  }
  const auto at_least = [](const char* option, int value, int least) {
    require(value >= least, ExitCode::usage, "{} is {}, wanted at least {}", option, value, least);
  };
  at_least("--prompt-tokens", prompt_tokens, 0);
  at_least("--tokens", tokens, 0);
  at_least("--context", context, 0);
  at_least("--repeats", repeats, 1);
  require(prompt_tokens > 0 || tokens > 0, ExitCode::usage,
          "--prompt-tokens and --tokens are both 0: there is nothing to measure");
  std::int64_t longest = prompts.empty() ? std::int64_t{context} + 1 : 0;
  for (const auto& prompt : prompts) longest = std::max(longest, std::int64_t(prompt.size()));
  const auto fits = [&](const char* what, std::int64_t wanted) {
    require(wanted <= model.max_positions, ExitCode::usage,
            "{} need {} positions, the model has {}", what, wanted, model.max_positions);
  };
  fits("--prompt-tokens", std::int64_t{prompt_tokens} + 1);
  fits("--context and --tokens", longest + tokens);
}

std::string BenchTest::name() const {
  return n_gen > 0 ? fmt::format("tg{}", n_gen) : fmt::format("pp{}", n_prompt);
}

double BenchTest::tokens_per_repeat() const {
  return n_gen > 0 ? double(prompts.size()) * n_gen : n_prompt;
}

double BenchTest::context() const {
  if (n_gen == 0) return 0;
  double tokens = 0;
  for (const auto& prompt : prompts) tokens += double(prompt.size()) - 1;
  return tokens / double(prompts.size());
}

std::vector<double> BenchTest::rates() const {
  std::vector<double> rates;
  for (const double s : seconds) rates.push_back(s > 0 ? tokens_per_repeat() / s : 0);
  return rates;
}

std::vector<Token> made_up_ids(int count, int vocab) {
  std::minstd_rand draw(1);
  std::vector<Token> ids(count);
  for (Token& id : ids) id = Token(draw() % unsigned(vocab));
  return ids;
}

BenchResult run_bench(const Session& session, const Methods& known, const BenchPlan& plan) {
  plan.check(session.model().config, known);
  std::map<std::string, std::unique_ptr<Decoder>> decoders;
  for (const std::string& method : plan.methods)
    decoders[method] = known.named(method, "--methods names").make(session);
  BenchResult result{.tests = tests_of(plan, session.model(), known)};

  Progress progress("bench", (1 + plan.repeats) * std::int64_t(result.tests.size()), "runs");
  std::int64_t done = 0;
  // by test: every method must give the same
  std::map<std::string, std::vector<DecodeResult>> first;
  for (BenchTest& test : result.tests) {
    const auto results = run_once(*decoders[test.method], test);
    const auto& wanted = first.try_emplace(test.name(), results).first->second;
    for (std::size_t i = 0; i < results.size() && !result.difference; ++i)
      result.difference = first_difference(wanted[i], results[i]);
    progress.update(++done);
  }
  result.peak_memory = peak_memory_bytes();  // before the memory that is there to be read only

  ThreadPool pool(session.threads());
  ReadPeak reader;
  for (int repeat = 0; repeat < plan.repeats; ++repeat) {
    reader.pass(pool);
    for (BenchTest& test : result.tests) {
      count_in(test, run_once(*decoders[test.method], test));
      progress.update(++done);
    }
  }
  result.read_peak = reader.best();
  return result;
}

}  // namespace dex
