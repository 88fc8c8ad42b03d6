// Conversations that the chat template cannot render cost their record.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "data/prepare.h"
#include "data/questions.h"
#include "tests/data/fake_renderer.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using nlohmann::json;

namespace {

// Refuses what says so.
Renderer particular_renderer() {
  Renderer renderer = test::byte_renderer();
  renderer.render = [](std::span<const Message> messages) {
    using Reason = ConversationRefused::Reason;
    for (const Message& message : messages) {
      if (message.content == "refuse") throw ConversationRefused(Reason::by_template, "no");
      if (message.content == "hide") throw ConversationRefused(Reason::unproven, "where?");
    }
    return test::render_bytes(messages);
  };
  return renderer;
}

PrepareOptions options_for(const test::TempDir& dir) {
  json records = json::array();
  for (const char* question : {"first", "refuse", "hide", "last"}) {
    const json turns = {{{"from", "human"}, {"value", question}},
                        {{"from", "gpt"}, {"value", "answer"}}};
    records.push_back({{"id", question}, {"conversations", turns}});
  }
  PrepareOptions options;
  options.data = dir.write("data.json", records.dump());
  options.out = dir / "out";
  options.held_out = 0;
  options.threads = 2;
  return options;
}

}  // namespace

TEST_CASE("a record whose conversation is refused is skipped, with its reason") {
  const test::TempDir dir;
  const PrepareOptions options = options_for(dir);
  const auto counts = prepare(options, particular_renderer()).manifest.facts.counts;
  CHECK(counts.at("read") == 4);
  CHECK(counts.at("kept") == 2);
  CHECK(counts.at("skipped.template_refused") == 1);
  CHECK(counts.at("skipped.unproven_targets") == 1);
  const std::string skipped = read_file(options.out / "skipped.jsonl");
  CHECK_THAT(skipped,
             Catch::Contains(R"({"id":"refuse","reason":"template_refused","record":1})") &&
                 Catch::Contains(R"({"id":"hide","reason":"unproven_targets","record":2})"));
}

TEST_CASE("a question whose conversation is refused is not asked, with its reason") {
  const test::TempDir dir;
  PrepareOptions options = options_for(dir);
  const QuestionOptions questions{.out = dir / "jobs.jsonl"};
  const auto counts = write_questions(options, questions, particular_renderer()).counts;
  CHECK(counts.at("kept") == 2);
  CHECK(counts.at("skipped.template_refused") == 1);
  CHECK(counts.at("skipped.unproven_targets") == 1);
}

// Between two lost quotes text and brackets change places.
TEST_CASE("records between two lost quotes are skipped as one, and their bytes are told") {
  const test::TempDir dir;
  PrepareOptions options = options_for(dir);
  json records = json::array();
  for (const char* answer : {"one", "two", "three", "four"})
    records.push_back(
        {{"conversations",
          {{{"from", "human"}, {"value", "q"}}, {{"from", "gpt"}, {"value", answer}}}}});
  std::string text = records.dump();
  for (const char* quoted : {"\"two\"", "\"three\""}) text.erase(text.find(quoted), 1);
  const std::size_t second = text.find(",{\"conversations\"") + 1;
  const std::size_t last = text.rfind("{\"conversations\"");
  options.data = dir.write("data.json", text);
  const auto counts = prepare(options, test::byte_renderer()).manifest.facts.counts;
  CHECK(counts.at("read") == 3);
  CHECK(counts.at("kept") == 2);
  CHECK(counts.at("skipped.not_json") == 1);
  const json line = json::parse(read_file(options.out / "skipped.jsonl"));
  CHECK(line.at("record") == 1);
  CHECK(line.at("offset") == second);
  CHECK(line.at("bytes") == last - 1 - second);
}
