// Rows of answers as reasoning models and other servers write them.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "data/answers.h"
#include "data/prepare.h"
#include "data/questions.h"
#include "tests/data/fake_renderer.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using dex::test::byte_renderer;
using dex::test::TempDir;
using nlohmann::json;

namespace {

const std::string kFirst = question_id(std::vector<Message>{{"user", "one"}});
const std::string kSecond = question_id(std::vector<Message>{{"user", "two"}});

json row(const std::string& id, const json& message, const json& reason = "stop") {
  const json choice = {{"index", 0}, {"finish_reason", reason}, {"message", message}};
  return {{"custom_id", id},
          {"response", {{"status_code", 200}, {"body", {{"choices", json::array({choice})}}}}},
          {"error", nullptr}};
}

// Two records, the second answered by TWO; the first by `first`.
struct Prepared {
  std::map<std::string, std::int64_t> counts;
  std::vector<std::string> samples;
};
Prepared prepared(const std::string& first, const Renderer& renderer = byte_renderer()) {
  const TempDir dir;
  json records = json::array();
  for (const char* question : {"one", "two"})
    records.push_back({{"conversations",
                        {{{"from", "human"}, {"value", question}},
                         {{"from", "gpt"}, {"value", "old"}, {"reasoning", "old thoughts"}}}}});
  PrepareOptions options;
  options.data = dir.write("data.json", records.dump());
  options.out = dir / "out";
  options.held_out = 0;
  options.answers = {
      dir.write("answers", first + row(kSecond, {{"content", "TWO"}}).dump() + "\n")};
  const auto counts = prepare(options, renderer).manifest.facts.counts;
  return {counts, test::texts(options.out, "train")};
}

}  // namespace

TEST_CASE("a row without a whole answer is one unanswered record") {
  json no_choices = row(kFirst, {{"content", "ONE"}}), no_body = no_choices, error = no_choices,
       late = no_choices, refused = no_choices, odd = no_choices;
  no_choices["response"]["body"]["choices"] = json::array();
  no_body["response"]["body"] = nullptr;
  error["error"] = {{"code", "server_error"}};
  late["response"] = nullptr;
  refused["response"]["status_code"] = 429;
  odd["response"] = "gone";
  const json calls = json::array({{{"id", "c"}, {"type", "function"}}});
  for (const json& first :
       {no_choices, no_body, error, late, refused, odd, row(kFirst, {{"content", nullptr}}),
        row(kFirst, {{"content", nullptr}, {"reasoning_content", "thin"}}, "length"),
        row(kFirst, {{"content", nullptr}, {"tool_calls", calls}}, "tool_calls"),
        row(kFirst, {{"content", "ONE"}, {"tool_calls", calls}}), row(kFirst, json::object()),
        row(kFirst, nullptr), row(kFirst, {{"content", 1}}), row(kFirst, {{"content", ""}}),
        row(kFirst, {{"content", "ONE"}, {"refusal", "no"}}),
        row(kFirst, {{"content", "ONE"}}, "content_filter"),
        row(kFirst, {{"content", "ONE"}}, "cancelled"), row(kFirst, {{"content", "ONE"}}, nullptr),
        row(kFirst, {{"content", "ONE"}}, 7)}) {
    CAPTURE(first.dump());
    const Prepared result = prepared(first.dump() + "\n");
    CHECK(result.samples == std::vector<std::string>{"#two|#[TWO|]"});
    CHECK(result.counts.at("skipped.unanswered") == 1);
    CHECK(result.counts.at("kept") == 1);
  }
}

TEST_CASE("stop ends an answer, length cuts it, empty extra fields change nothing") {
  const auto sample = [](const json& first) { return prepared(first.dump() + "\n").samples.at(0); };
  CHECK(sample(row(kFirst, {{"content", "ONE"}})) == "#one|#[ONE|]");
  CHECK(sample(row(kFirst, {{"content", "ONE"}}, "length")) == "#one|#[ONE]");
  CHECK(sample(row(kFirst, {{"content", "ONE"},
                            {"tool_calls", json::array()},
                            {"function_call", nullptr},
                            {"refusal", nullptr}})) == "#one|#[ONE|]");
}

TEST_CASE("reasoning is kept with the answer, or the record is skipped where it has no place") {
  for (const char* name : {"reasoning_content", "reasoning"}) {
    const json first = row(kFirst, {{"content", "ONE"}, {name, "why"}});
    CHECK(prepared(first.dump() + "\n").samples.at(0) == "#one|#[{why}ONE|]");
    Renderer hiding = byte_renderer();
    hiding.shows_reasoning = false;
    const Prepared result = prepared(first.dump() + "\n", hiding);
    CHECK(result.counts.at("skipped.hidden_reasoning") == 1);
    CHECK(result.samples == std::vector<std::string>{"#two|#[TWO|]"});
  }
}

TEST_CASE("blank lines and a byte order mark are no rows, lines keep their numbers") {
  const std::string first = row(kFirst, {{"content", "ONE"}}).dump();
  for (const std::string& text :
       {"\n" + first + "\n\n", first + "\r\n \t\r\n", "\xEF\xBB\xBF" + first + "\n"}) {
    CAPTURE(text);
    CHECK(prepared(text).samples == std::vector<std::string>{"#one|#[ONE|]", "#two|#[TWO|]"});
  }
  test::check_refused(ExitCode::io, {"answers line 4"},
                      [&] { prepared(first + "\n\n\nno JSON\n"); });
  test::check_refused(ExitCode::io, {"answers line 2"},
                      [&] { prepared("\n{\"custom_id\":\"a\",\"score\":1e999}\n"); });
}

TEST_CASE("an answer in place of one that is marked as context stays context") {
  const TempDir dir;
  const json turns = {{{"from", "human"}, {"value", "one"}},
                      {{"from", "gpt"}, {"value", "old"}, {"weight", 0}},
                      {{"from", "human"}, {"value", "two"}},
                      {{"from", "gpt"}, {"value", "old"}}};
  PrepareOptions options;
  options.data = dir.write("data.json", json::array({{{"conversations", turns}}}).dump());
  options.held_out = 0;
  const std::string next =
      question_id(std::vector<Message>{{"user", "one"}, {"assistant", "ONE"}, {"user", "two"}});
  const std::string rows = row(kFirst, {{"content", "ONE"}}).dump() + "\n";
  options.answers = {
      dir.write("answers", rows + row(next, {{"content", "TWO"}}, "length").dump() + "\n")};
  options.out = dir / "out";
  prepare(options, byte_renderer());
  CHECK(test::texts(options.out, "train") == std::vector<std::string>{"#one|#ONE|#two|#[TWO]"});
}
