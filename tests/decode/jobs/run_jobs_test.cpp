#include "decode/jobs/run_jobs.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/safetensors.h"
#include "decode/jobs/answer_row.h"
#include "kernels/numbers_version.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using Json = nlohmann::json;

std::vector<Json> lines_of(const std::filesystem::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::filesystem::path tiny(const test::TempDir& dir) {
  const auto path =
      test::TinyModel{.layers = 6, .vocab = test::kByteVocabulary + 5, .max_positions = 64}.write(
          dir / "model");
  test::write_byte_tokenizer(path);
  return path;
}

SessionOptions options(const std::filesystem::path& model) {
  return {.model = model, .depths = "2,4", .chat_template = "chatml", .threads = 2};
}

}  // namespace

TEST_CASE(
    "every non-blank line gets one answer in input order, and the answers do not tell what decoded "
    "them") {
  const test::TempDir dir;
  const auto model = tiny(dir);
  const auto input =
      dir.write("jobs.jsonl",
                "{\"custom_id\":\"a\",\"prompt\":\"hello\",\"max_tokens\":9}\n\nnot json\n"
                "{\"custom_id\":\"c\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_"
                "tokens\":5}\n"
                "{\"custom_id\":\"long\",\"prompt\":\"" +
                    std::string(64, 'q') +
                    "\"}\n"
                    "{\"custom_id\":\"none\",\"prompt\":\"x\",\"max_tokens\":0}\n"
                    "{\"custom_id\":\"empty\",\"prompt\":\"\"}\n");
  const Session session(options(model));
  CHECK(run_jobs(session, ar_method(), {.input = input, .output = dir / "plain.jsonl"}) == 3);
  CHECK(run_jobs(session, dex_method(),
                 {.input = input, .output = dir / "dex.jsonl", .verify = true}) == 3);
  CHECK(sha256_of_file(dir / "plain.jsonl") == sha256_of_file(dir / "dex.jsonl"));

  const auto rows = lines_of(dir / "dex.jsonl");
  REQUIRE(rows.size() == 6);
  CHECK(rows[0].at("custom_id") == "a");
  CHECK(rows[0].at("error").is_null());
  CHECK(rows[0].at("response").at("body").at("usage").at("prompt_tokens") == 5);
  CHECK(rows[1].at("custom_id").is_null());
  CHECK(rows[1].at("error").at("message").get<std::string>().find("line 3") == 0);
  CHECK(rows[2].at("response").at("body").at("choices")[0].at("message").at("role") == "assistant");
  CHECK(rows[3].at("error").at("message").get<std::string>().find("64 tokens") !=
        std::string::npos);
  CHECK(rows[4].at("response").at("body").at("usage").at("completion_tokens") == 0);
  CHECK(rows[5].at("response").at("status_code") == 400);
  const auto stats = lines_of(dir / "dex.jsonl.stats.jsonl");
  REQUIRE(stats.size() == 3);
  for (const auto& row : stats) CHECK(row.at("numbers_version") == kNumbersVersion);
}

namespace {

// The last value of a row of a matrix becomes `value`.
struct Spoilt {
  std::string tensor;
  int row = 0;
  float value = 0;
};

void spoil(const std::filesystem::path& model, const std::vector<Spoilt>& values) {
  const WeightFile weights = WeightFile::open(model);
  auto tensors = weights.tensors();
  std::map<std::string, std::vector<std::byte>> changed;
  for (const Spoilt& one : values) {
    StoredTensor& tensor = tensors.at(one.tensor);
    auto& bytes = changed[one.tensor];
    if (bytes.empty()) bytes.assign(tensor.bytes.begin(), tensor.bytes.end());
    const auto width = std::size_t(tensor.shape.back()) * sizeof(float);
    std::memcpy(bytes.data() + (one.row + 1) * width - sizeof(float), &one.value, sizeof(float));
    tensor.bytes = bytes;
  }
  write_safetensors(model / "spoilt", tensors, weights.metadata());
  std::filesystem::rename(model / "spoilt", model / "model.safetensors");
}

// An id that the tokenizer does not know: no exit proposes it.
constexpr Token kBreaker = test::kByteVocabulary + 1;

// Only that id has something in the last dimension, and the first layer cannot bear it.
std::filesystem::path breaks_at_one_id(const test::TempDir& dir) {
  const test::TinyModel tiny{.layers = 4,
                             .hidden = 32,
                             .intermediate = 48,
                             .vocab = test::kByteVocabulary + 5,
                             .max_positions = 64,
                             .tied = false};
  const auto model = tiny.write(dir / "model");
  test::write_byte_tokenizer(model);
  const std::string layer = "model.layers.0.";
  std::vector<Spoilt> values{{"model.embed_tokens.weight", kBreaker, 1}};
  for (int id = 0; id < tiny.vocab; ++id)
    if (id != kBreaker) values.push_back({"model.embed_tokens.weight", id, 0});
  for (int i = 0; i < tiny.intermediate; ++i)
    for (const char* name : {"gate", "up"})
      values.push_back({layer + "mlp." + name + "_proj.weight", i, 1e30f});
  spoil(model, values);
  // nothing else is ever written to that dimension
  WeightFile weights = WeightFile::open(model);
  auto tensors = weights.tensors();
  std::map<std::string, std::vector<std::byte>> changed;
  for (const char* name : {"self_attn.o_proj.weight", "mlp.down_proj.weight"}) {
    StoredTensor& tensor = tensors.at(layer + name);
    auto& bytes = changed[name];
    bytes.assign(tensor.bytes.begin(), tensor.bytes.end());
    const auto width = std::size_t(tensor.shape.back()) * sizeof(float);
    std::fill(bytes.end() - std::ptrdiff_t(width), bytes.end(), std::byte{0});
    tensor.bytes = bytes;
  }
  write_safetensors(model / "spoilt", tensors, weights.metadata());
  std::filesystem::rename(model / "spoilt", model / "model.safetensors");
  return model;
}

}  // namespace

TEST_CASE("a job whose logits are NaN costs its own row, in whatever decodes it") {
  const test::TempDir dir;
  const Session session(options(breaks_at_one_id(dir)));
  const auto job = [](const char* id, const Json& prompt) {
    return Json{{"custom_id", id}, {"prompt", prompt}, {"max_tokens", 5}}.dump() + "\n";
  };
  const auto sound = dir.write("sound.jsonl", job("first", "abc") + job("last", "xyz"));
  const auto broken =
      dir.write("broken.jsonl", job("first", "abc") + "\n" + job("bad", {97, kBreaker, 97}) +
                                    job("worse", {kBreaker}) + job("last", "xyz"));
  for (const Method& method : {ar_method(), dex_method(), dex_method({.expand = "full"})}) {
    const RunJobsOptions to{.overwrite = true, .verify = true};
    auto a = to, b = to;
    a.input = sound, a.output = dir / "sound.out";
    b.input = broken, b.output = dir / "broken.out";
    CHECK(run_jobs(session, method, a) == 0);
    CHECK(run_jobs(session, method, b) == 3);
    const auto want = lines_of(a.output), rows = lines_of(b.output);
    REQUIRE(rows.size() == 4);
    const auto text = [](const Json& row) {
      return row.at("response").at("body").at("choices")[0].at("token_ids");
    };
    CHECK(text(rows[0]) == text(want[0]));
    CHECK(text(rows[3]) == text(want[1]));
    CHECK(rows[1].at("custom_id") == "bad");
    CHECK(rows[2].at("custom_id") == "worse");
    for (const int i : {1, 2}) {
      CHECK(rows[i].at("response").at("status_code") == 400);
      CHECK_THAT(rows[i].at("error").at("message").get<std::string>(),
                 Catch::Contains("line " + std::to_string(i + 2)) && Catch::Contains("NaN"));
    }
    CHECK(lines_of(b.output.string() + ".stats.jsonl").size() == 2);
  }
}

TEST_CASE("an answer's body has the fields and types of the SDK, and is a function of its job") {
  const test::TempDir dir;
  const auto model = tiny(dir);
  const Session session(options(model));
  const std::string lines =
      "{\"custom_id\":\"chat\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{"
      "\"model\":\"x\",\"max_tokens\":4,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}}\n"
      "{\"custom_id\":\"text\",\"prompt\":\"go on\",\"max_tokens\":4,\"created\":1700000000}\n"
      "{\"prompt\":[1,2,3],\"max_tokens\":4}\n{\"prompt\":[1,2,3],\"max_tokens\":4}\n"
      "{\"prompt\":[1,99999]}\n";
  const auto input = dir.write("jobs.jsonl", lines), copy = dir.write("copy.jsonl", lines);
  using namespace std::chrono_literals;
  const auto written =
      std::filesystem::file_time_type::clock::from_sys(std::chrono::sys_seconds(1600000000s));
  for (const auto& file : {input, copy}) std::filesystem::last_write_time(file, written + 900ms);
  CHECK(run_jobs(session, dex_method(), {.input = input, .output = dir / "a"}) == 3);
  CHECK(run_jobs(session, ar_method(), {.input = copy, .output = dir / "b"}) == 3);
  CHECK(read_file(dir / "a") == read_file(dir / "b"));

  const auto rows = lines_of(dir / "a");
  REQUIRE(rows.size() == 5);
  std::set<std::string> ids;
  for (const Json& row : rows) ids.insert(row.at("id"));
  CHECK(ids.size() == 5);  // of equal lines, too
  const auto body = [&](int i) { return rows[i].at("response").at("body"); };
  for (int i = 0; i < 4; ++i) {
    CAPTURE(i);
    const Json answer = body(i);
    CHECK(answer.at("id").is_string());
    CHECK(answer.at("object") == (i == 0 ? "chat.completion" : "text_completion"));
    CHECK(answer.at("created") == (i == 1 ? 1700000000 : 1600000000));
    CHECK(answer.at("created").is_number_integer());
    CHECK(answer.at("model") == "model");
    const Json& choice = answer.at("choices").at(0);
    CHECK(answer.at("choices").size() == 1);
    CHECK(choice.at("index") == 0);
    CHECK((choice.at("finish_reason") == "length" || choice.at("finish_reason") == "stop"));
    CHECK(choice.at("logprobs").is_null());
    if (i == 0) {
      CHECK(choice.at("message").at("role") == "assistant");
      CHECK(choice.at("message").at("content").is_string());
      CHECK(choice.at("message").at("refusal").is_null());
    } else {
      CHECK(choice.at("text").is_string());
    }
    const Json& usage = answer.at("usage");
    for (const char* name : {"prompt_tokens", "completion_tokens", "total_tokens"})
      CHECK(usage.at(name).is_number_integer());
    CHECK(usage.at("total_tokens") ==
          usage.at("prompt_tokens").get<int>() + usage.at("completion_tokens").get<int>());
  }
  CHECK(body(2) == body(3));
  CHECK(body(0).at("id").get<std::string>().starts_with("chatcmpl-"));
  CHECK(body(2).at("usage").at("prompt_tokens") == 3);  // nothing before ids
  CHECK_THAT(rows[4].at("error").at("message").get<std::string>(),
             Catch::Contains("99999") && Catch::Contains("line 5"));
}

TEST_CASE("the end token is not part of an answer, special or not") {
  const test::TempDir dir;
  const auto model = tiny(dir);
  const auto input = dir.write("jobs.jsonl", "{\"prompt\":[7,8,9],\"max_tokens\":12}\n");
  const auto choice = [&](const char* output) {
    const Session session(options(model));
    CHECK(run_jobs(session, dex_method(), {.input = input, .output = dir / output}) == 0);
    return lines_of(dir / output)[0].at("response").at("body").at("choices")[0];
  };
  const std::vector<int> all = choice("free").at("token_ids");
  REQUIRE(all.size() == 12);
  const auto end = std::find_if(all.begin() + 1, all.end(), [&](int id) {
    return id < 256 && std::find(all.begin(), all.end(), id) != all.begin();
  });
  REQUIRE(end != all.end());
  const auto first = std::find(all.begin(), all.end(), *end);
  Json config = Json::parse(read_file(model / "config.json"));
  config["eos_token_id"] = *end;
  write_file(model / "config.json", config.dump());
  const Json cut = choice("bound");
  CHECK(cut.at("finish_reason") == "stop");
  CHECK(cut.at("stop_reason") == *end);
  CHECK(cut.at("token_ids") == std::vector<int>(all.begin(), first + 1));
  const std::vector<Token> before(all.begin(), first);
  CHECK(cut.at("text") == Json::parse(line_of(load_tokenizer(model)->decode(before, false))));
}

TEST_CASE("an output that is there is replaced when that is asked for") {
  const test::TempDir dir;
  const Session session(options(tiny(dir)));
  const auto input = dir.write("jobs.jsonl", "{\"prompt\":\"a\",\"max_tokens\":2}\n");
  for (const char* name : {"out.jsonl", "out.jsonl.stats.jsonl"}) {
    const auto there = dir.write(name, "mine");
    test::check_refused(ExitCode::usage, {there.string(), "--overwrite"}, [&] {
      run_jobs(session, dex_method(), {.input = input, .output = dir / "out.jsonl"});
    });
    CHECK(read_file(there) == "mine");
    CHECK(run_jobs(session, dex_method(),
                   {.input = input, .output = dir / "out.jsonl", .overwrite = true}) == 0);
    CHECK(read_file(there) != "mine");
    std::filesystem::remove(dir / "out.jsonl");
    std::filesystem::remove(dir / "out.jsonl.stats.jsonl");
  }
}

TEST_CASE("a failed run leaves no output") {
  const test::TempDir dir;
  const Session session(options(tiny(dir)));
  const auto blank = dir.write("blank.jsonl", "\n\n");
  CHECK_THROWS_AS(run_jobs(session, dex_method(), {.input = blank, .output = dir / "out.jsonl"}),
                  Error);
  CHECK_THROWS_AS(run_jobs(session, dex_method(),
                           {.input = dir / "missing.jsonl", .output = dir / "out.jsonl"}),
                  Error);
  CHECK_FALSE(std::filesystem::exists(dir / "out.jsonl"));
  const auto jobs = dir.write("jobs.jsonl", "{\"prompt\":\"a\"}\n");
  const std::string before = read_file(jobs);
  CHECK_THROWS_WITH(run_jobs(session, dex_method(), {.input = jobs, .output = jobs}),
                    Catch::Contains("--input"));
  CHECK_THROWS_WITH(run_jobs(session, dex_method(), {.input = jobs, .output = dir.path()}),
                    Catch::Contains("directory"));
  CHECK_THROWS_WITH(
      run_jobs(session, dex_method(), {.input = jobs, .output = dir / "none" / "out.jsonl"}),
      Catch::Contains("none"));
  CHECK(read_file(jobs) == before);
}

TEST_CASE("jobs at the edges of a 64-position model end as plain decoding does") {
  const auto model = test::shared("cases/d-m1"), jobs = test::shared("cases/d-g2-boundaries.jsonl");
  if (!model || !jobs) return;
  const test::TempDir dir;
  const Session session({.model = *model, .depths = "1", .threads = 1});
  CHECK(run_jobs(session, dex_method({.expand = "full"}),
                 {.input = *jobs, .output = dir / "out.jsonl", .verify = true}) == 3);
  std::map<std::string, Json> by_id;
  for (Json& row : lines_of(dir / "out.jsonl")) by_id[row.at("custom_id").get<std::string>()] = row;
  CHECK(by_id.size() == 21);
  for (const char* id : {"over-65", "over-5000", "neg-max", "temp-neg", "temp-string", "empty"}) {
    CAPTURE(id);
    CHECK_FALSE(by_id.at(id).at("error").is_null());
  }
  for (const char* id :
       {"one-new", "fills-to-63", "cap-past-context", "near-end", "ok-last", "zero-new"}) {
    CAPTURE(id);
    CHECK(by_id.at(id).at("error").is_null());
    const auto& usage = by_id.at(id).at("response").at("body").at("usage");
    CHECK(usage.at("total_tokens").get<int>() <= 64);
  }
}

}  // namespace dex
