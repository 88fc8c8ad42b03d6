#include "decode/bench/bench.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/base/spread.h"
#include "decode/bench/bench_report.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using Json = nlohmann::json;

BenchSetting setting_of(const Session& session) {
  return {.model = "tiny",
          .dtype = "f32",
          .cpu = "some CPU",
          .threads = session.threads(),
          .weight_bytes = session.model().pass_bytes(),
          .depths = session.model().depths};
}

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("a spread is what textbooks say") {
  const Spread odd = spread_of({3, 1, 2});
  CHECK(odd.median == 2);
  CHECK(odd.least == 1);
  CHECK(odd.most == 3);
  CHECK(odd.mean == Approx(2));
  CHECK(odd.deviation == Approx(1));
  CHECK(spread_of({1, 2, 4, 9}).median == 3);
  CHECK(spread_of({5}).deviation == 0);
  CHECK(spread_of({}).median == 0);
}

TEST_CASE("made-up ids are the same ones everywhere and inside the vocabulary") {
  const auto ids = made_up_ids(1000, 97);
  CHECK(ids == made_up_ids(1000, 97));
  CHECK(std::vector<Token>(ids.begin(), ids.begin() + 4) ==
        std::vector<Token>{48271 % 97, 182605794 % 97, 1291394886 % 97, 1914720637 % 97});
  for (const Token id : ids) CHECK((id >= 0 && id < 97));
}

TEST_CASE("a pass meets every matrix of the layers and the head once") {
  const test::TempDir dir;
  const test::TinyModel tiny;
  const Session f32({.model = tiny.write(dir / "m")}), bf16({.model = dir / "m", .dtype = "bf16"}),
      int8({.model = dir / "m", .dtype = "int8"});
  const int q = tiny.heads * tiny.head_dim, kv = tiny.kv_heads * tiny.head_dim;
  const int layer =
      tiny.hidden * (q + 2 * kv) + q * tiny.hidden + 3 * tiny.hidden * tiny.intermediate;
  CHECK(f32.model().pass_bytes() == 4 * (tiny.layers * layer + tiny.vocab * tiny.hidden));
  CHECK(bf16.model().pass_bytes() == 2 * (tiny.layers * layer + tiny.vocab * tiny.hidden));
  const int scales =
      tiny.layers * (q + 2 * kv + tiny.hidden + 2 * tiny.intermediate + tiny.hidden) + tiny.vocab;
  CHECK(int8.model().pass_bytes() == tiny.layers * layer + tiny.vocab * tiny.hidden + 4 * scales);
}

TEST_CASE("every method has a line for every measurement, and the summary is made of them") {
  const test::TempDir dir;
  const Session session(
      {.model = test::TinyModel{}.write(dir / "m"), .depths = "1,2", .threads = 2});
  const BenchPlan plan{
      .methods = {"ar", "dex"}, .prompt_tokens = 20, .tokens = 6, .context = 3, .repeats = 3};
  const BenchResult result = run_bench(session, Methods(), plan);
  CHECK_FALSE(result.difference);
  CHECK(result.read_peak > 0);
  CHECK(result.peak_memory > 0);
  REQUIRE(result.tests.size() == 4);
  for (const BenchTest& test : result.tests) {
    CAPTURE(test.name(), test.method);
    CHECK(test.name() == (test.n_gen > 0 ? "tg6" : "pp20"));
    CHECK(test.context() == (test.n_gen > 0 ? 3 : 0));
    CHECK(test.tally.tokens() == 3 * (test.n_gen > 0 ? 6 : 1));
    CHECK(test.seconds.size() == 3);
  }

  const auto lines = lines_of(bench_lines(result, setting_of(session)));
  REQUIRE(lines.size() == 4);
  for (const Json& line : lines) {
    CAPTURE(line.dump());
    for (const char* field :
         {"cpu_info", "model_filename", "n_threads", "n_prompt", "n_gen", "n_depth", "test_time",
          "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts"})
      CHECK(line.contains(field));
    CHECK(line.at("min_ts") <= line.at("median_ts"));
    CHECK(line.at("median_ts") <= line.at("max_ts"));
    const bool plain_generation = line.at("method") == "ar" && line.at("n_gen") == 6;
    CHECK(line.contains("share_of_peak") == plain_generation);
    if (plain_generation) CHECK(line.at("share_of_peak") <= 1.0);
    CHECK(line.contains("relative_to_ar") == (line.at("method") == "dex"));
    CHECK(line.contains("rounds_per_token") == (line.at("n_gen") == 6));
  }

  const Json methods = bench_summary(result, setting_of(session)).at("methods");
  CHECK(methods.at("ar").at("rounds_per_token") == 1);
  CHECK(methods.at("dex").at("tokens_per_second") == lines[3].at("median_ts"));
  CHECK(methods.at("dex").at("first_token_seconds") == lines[1].at("first_token_seconds"));
  CHECK_THAT(bench_table(result, setting_of(session)),
             Catch::Contains("tg6 by dex") && Catch::Contains("some CPU, 2 thread(s)"));
}

namespace {

// Takes a second to read the prompt, one more up to the first token, and ten for the whole.
class TimedDecoder final : public Decoder {
 public:
  DecodeResult generate(std::span<const Token>, const Limits& limits, const OnToken&) override {
    DecodeResult result{.finish_reason = "length", .rounds = limits.max_tokens};
    result.tokens.resize(std::size_t(limits.max_tokens));
    result.prefill_seconds = 1;
    result.first_token_seconds = 2;
    result.total_seconds = 10;
    return result;
  }
};

}  // namespace

TEST_CASE("a bench divides tokens by the time to the first one, or by the time of decoding") {
  const test::TempDir dir;
  const Session session({.model = test::TinyModel{}.write(dir / "m"), .threads = 1});
  const Method timed{
      .name = "timed", .summary = "as told", .is_reference = true, .make = [](const Session&) {
        return std::make_unique<TimedDecoder>();
      }};
  const Methods methods(std::vector<Method>{timed});
  const BenchResult result = run_bench(
      session, methods, {.methods = {"timed"}, .prompt_tokens = 20, .tokens = 6, .repeats = 2});
  REQUIRE(result.tests.size() == 2);
  CHECK(result.tests[0].seconds == std::vector<double>{2, 2});
  CHECK(result.tests[0].rates() == std::vector<double>{10, 10});  // 20 tokens of prompt in 2 s
  CHECK(result.tests[1].seconds == std::vector<double>{9, 9});
  CHECK(result.tests[1].rates()[0] == Approx(0.6666667));  // 6 tokens in 9 s
  BenchSetting setting = setting_of(session);
  setting.weight_bytes = 3000;
  const auto lines = lines_of(bench_lines(result, setting));
  CHECK(lines[0].at("samples_ns") == Json{2000000000, 2000000000});
  CHECK(lines[0].at("first_token_seconds") == 2);
  CHECK(lines[1].at("median_ts") == Approx(0.6666667));
  CHECK(lines[1].at("bytes_per_second") == Approx(2000));
  CHECK(bench_summary(result, setting).at("methods").at("timed").at("first_token_seconds") == 2);
}

TEST_CASE("given prompts are what generation follows, and zero leaves a measurement out") {
  const test::TempDir dir;
  const Session session({.model = test::TinyModel{}.write(dir / "m"), .threads = 1});
  const BenchPlan plan{.methods = {"ar"},
                       .prompt_tokens = 0,
                       .tokens = 4,
                       .repeats = 1,
                       .prompts = {{1, 2, 3}, {4, 5, 6, 7, 8}}};
  const BenchResult result = run_bench(session, Methods(), plan);
  REQUIRE(result.tests.size() == 1);
  CHECK(result.tests[0].tokens_per_repeat() == 8);
  CHECK(result.tests[0].tally.tokens() == 8);
  CHECK(result.tests[0].context() == 3);
}

TEST_CASE("a bench that cannot be is refused with the value seen") {
  const test::TempDir dir;
  const Session session(
      {.model = test::TinyModel{.max_positions = 64}.write(dir / "m"), .threads = 1});
  const std::vector<std::string> ar{"ar"};
  const std::vector<std::pair<BenchPlan, std::string>> cases{
      {{.methods = {"fast"}}, "fast"},
      {{.methods = {"ar", "ar"}}, "ar twice"},
      {{.methods = {}}, "no method"},
      {{.methods = ar, .prompt_tokens = -1}, "-1"},
      {{.methods = ar, .tokens = -2}, "-2"},
      {{.methods = ar, .context = -3}, "-3"},
      {{.methods = ar, .repeats = 0}, "--repeats is 0"},
      {{.methods = ar, .prompt_tokens = 0, .tokens = 0}, "both 0"},
      {{.methods = ar, .prompt_tokens = 64}, "65"},
      {{.methods = ar, .prompt_tokens = 8, .tokens = 64}, "65"},
      {{.methods = ar, .prompt_tokens = 8, .tokens = 8, .context = 2147483647}, "the model has 64"},
      {{.methods = ar, .prompt_tokens = 8, .tokens = 62, .prompts = {{1, 2, 3}}}, "65"}};
  for (const auto& [plan, seen] : cases)
    test::check_refused(ExitCode::usage, {seen},
                        [&, &plan = plan] { plan.check(session.model().config, Methods()); });
}

}  // namespace dex
