#include "decode/jobs/job.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/shared.h"

namespace dex {
namespace {

const Job& good(const JobLine& line) {
  REQUIRE(std::holds_alternative<Job>(line.content));
  return std::get<Job>(line.content);
}
const BadJob& bad(const JobLine& line) {
  REQUIRE(std::holds_alternative<BadJob>(line.content));
  return std::get<BadJob>(line.content);
}

std::string file_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("the batch form and the flat form are read alike") {
  const auto jobs = parse_jobs(
      R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"hi"}],"max_tokens":5}})"
      "\n"
      R"({"custom_id":"b","prompt":"go on","max_completion_tokens":7,"temperature":0})");
  REQUIRE(jobs.size() == 2);
  CHECK(good(jobs[0]).messages.front().content == "hi");
  CHECK(good(jobs[0]).max_tokens == 5);
  CHECK(good(jobs[1]).prompt == "go on");
  CHECK(good(jobs[1]).max_tokens == 7);
  CHECK(jobs[1].number == 2);
}

TEST_CASE("only LF ends a line, a mark, one CR and blank lines are dropped") {
  const auto jobs =
      parse_jobs("\xEF\xBB\xBF{\"prompt\":\"a\"}\r\n\n   \n{\"prompt\":\"b\xE2\x80\xA8\x63\"}");
  REQUIRE(jobs.size() == 2);
  CHECK(good(jobs[0]).prompt == "a");
  CHECK(good(jobs[1]).prompt == "b\xE2\x80\xA8\x63");
  CHECK(jobs[1].number == 4);
  CHECK(parse_jobs("").empty());
  CHECK(parse_jobs("\n\r\n").empty());
}

TEST_CASE("a bad line becomes one bad job that says why") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"[1]", "array"},
      {"null", "null"},
      {"{\"prompt\":", "not JSON"},
      {"{\"custom_id\":\"x\"}", "neither"},
      {"{\"prompt\":5}", "number"},
      {"{\"prompt\":\"a\",\"messages\":[]}", "both"},
      {"{\"messages\":[]}", "empty"},
      {"{\"messages\":[{\"role\":\"user\"}]}", "content"},
      {"{\"prompt\":\"a\",\"max_tokens\":-1}", "-1"},
      {"{\"prompt\":\"a\",\"max_tokens\":1.5}", "1.5"},
      {"{\"prompt\":\"a\",\"max_tokens\":99999999999}", "99999999999"},
      {"{\"prompt\":\"a\",\"temperature\":\"hot\"}", "hot"},
      {"{\"prompt\":\"a\",\"temperature\":-1}", "-1"},
      {"{\"prompt\":\"a\",\"temperature\":0.7}", "greedy"},
      {"{\"prompt\":\"a\",\"temperature\":NaN}", "not JSON"},
      {"{\"prompt\":\"\xFF\"}", "not JSON"},
      {"{\"prompt\":\"a\"} x", "not JSON"},
      {"{\"prompt\":\"a\",\"n\":2}", "\"n\""},
      {"{\"prompt\":\"a\",\"stop\":[\"x\"]}", "stop"},
      {"{\"prompt\":\"a\",\"logprobs\":true}", "logprobs"},
      {"{\"prompt\":\"a\",\"echo\":true}", "echo"},
      {"{\"prompt\":\"a\",\"presence_penalty\":0.5}", "presence_penalty"},
      {"{\"prompt\":" + std::string(200000, '[') + std::string(200000, ']') + "}", "array"},
      {"{\"prompt\":\"a\",\"n\":" + std::string(200000, '[') + std::string(200000, ']') + "}",
       "array"},
      {"{\"body\":3}", "body"},
      {"{\"custom_id\":3,\"prompt\":\"a\"}", "custom_id"}};
  for (const auto& [line, reason] : cases) {
    CAPTURE(line);
    const auto jobs = parse_jobs(line);
    REQUIRE(jobs.size() == 1);
    CHECK_THAT(bad(jobs.front()).reason, Catch::Contains(reason));
  }
  CHECK(
      good(
          parse_jobs(
              R"({"prompt":"a","frequency_penalty":0.0,"presence_penalty":0,"n":1,"stream":false,"logprobs":null})")
              .front())
          .prompt == "a");
  CHECK(bad(parse_jobs("{\"custom_id\":\"named\",\"prompt\":1}").front()).custom_id == "named");
}

TEST_CASE("messy lines of a real report come out as expected") {
  const auto path = test::shared("cases/d-b1-messy.jsonl"),
             expected_path = test::shared("cases/d-b1-expected.json");
  if (!path || !expected_path) return;
  const auto expected = nlohmann::json::parse(file_text(*expected_path));
  std::vector<std::string> run;
  std::vector<int> errors;
  for (const JobLine& line : parse_jobs(file_text(*path))) {
    if (const auto* job = std::get_if<Job>(&line.content))
      run.push_back(job->custom_id);
    else
      errors.push_back(line.number);
  }
  std::erase(run, "twice");  // of a repeated key the last one counts
  CHECK(run == expected.at("run").get<std::vector<std::string>>());
  CHECK(errors == expected.at("error_row_lines").get<std::vector<int>>());
}

}  // namespace dex
