#include "decode/jobs/run_jobs.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "tests/support/byte_tokenizer.h"
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
  CHECK(lines_of(dir / "dex.jsonl.stats.jsonl").size() == 3);
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
