// What stands in a record beside its texts is in its sample, or the record is skipped for its own
// reason.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "data/prepare.h"
#include "data/questions.h"
#include "tests/data/fake_renderer.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using dex::test::byte_renderer;
using dex::test::TempDir;
using nlohmann::json;

namespace {

PrepareOptions options_for(const TempDir& dir, const std::string& text) {
  PrepareOptions options;
  options.data = dir.write("data.json", text);
  options.out = dir / "out";
  options.max_len = 100;
  options.held_out = 0;
  return options;
}

// The sample of a record, or why it is skipped. Another record keeps the data set from being empty.
std::string sample_of(const std::string& record, bool shows_reasoning = true) {
  const TempDir dir;
  const auto options = options_for(dir, "[" + record +
                                            R"(,{"messages":[{"role":"user","content":"?"},)"
                                            R"({"role":"assistant","content":"!"}]}])");
  Renderer renderer = byte_renderer();
  renderer.shows_reasoning = shows_reasoning;
  const auto counts = prepare(options, renderer).manifest.facts.counts;
  std::string reason;
  std::int64_t sum = counts.at("kept");
  for (const auto& [name, count] : counts)
    if (name.starts_with("skipped.") && count > 0) reason = name.substr(8), sum += count;
  CHECK(sum == 2);
  return reason.empty() ? test::texts(options.out, "train").at(0) : reason;
}

std::string with(const std::string& beside, const std::string& turns) {
  return R"({"id":"r",)" + beside + R"("conversations":[)" + turns + "]}";
}
std::string user(const std::string& text) {
  return json{{"from", "human"}, {"value", text}}.dump();
}
std::string answer(const std::string& text, json more = json::object()) {
  more.update({{"from", "gpt"}, {"value", text}});
  return more.dump();
}
std::string system_turn(const std::string& text) {
  return json{{"from", "system"}, {"value", text}}.dump();
}

}  // namespace

TEST_CASE("a system text beside the turns leads the sample, and stands there once") {
  const std::string beside = R"("system":"S",)", turns = user("q") + "," + answer("a");
  CHECK(sample_of(with(beside, turns)) == "#S|#q|#[a|]");
  CHECK(sample_of(with(R"("system_prompt":"S",)", turns)) == "#S|#q|#[a|]");
  CHECK(sample_of(with(R"("system":"  ",)", turns)) == "#q|#[a|]");
  CHECK(sample_of(with(beside, system_turn("S") + "," + turns)) == "#S|#q|#[a|]");
  CHECK(sample_of(with(beside, system_turn("T") + "," + turns)) == "other_system");
  CHECK(sample_of(with(beside, system_turn("*This conversation is shared from x*") + "," +
                                   turns)) == "#S|#q|#[a|]");
  CHECK(sample_of(with(beside, answer("rest") + "," + turns)) == "#S|#q|#[a|]");
  CHECK(sample_of(with("", answer("rest") + "," + system_turn("S") + "," + turns)) ==
        "other_system");
  CHECK(sample_of(with("", system_turn("S") + "," + system_turn("T") + "," + turns)) ==
        "other_system");
}

TEST_CASE("marked answers are context, and a record of nothing else is skipped") {
  const json off = {{"weight", 0}};
  CHECK(sample_of(with("", user("q") + "," + answer("bad", off) + "," + user("r") + "," +
                               answer("good"))) == "#q|#bad|#r|#[good|]");
  CHECK(sample_of(with("", user("q") + "," + answer("good") + "," + user("r") + "," +
                               answer("bad", {{"train", false}}))) == "#q|#[good|]#r|#bad|");
  CHECK(sample_of(with("", user("q") + "," + answer("bad", off))) == "all_masked");
  CHECK(sample_of(with(R"("train":false,)", user("q") + "," + answer("bad"))) == "all_masked");
  CHECK(sample_of(with("", user("q") + "," + answer("half", {{"weight", 0.5}}))) == "odd_mark");
  // the one answer that may be trained on lies past the limit
  CHECK(sample_of(with("", user("q") + "," + answer(std::string(200, 'x'), off) + "," + user("r") +
                               "," + answer("good"))) == "no_target");
  // the one that may be trained on is blank
  CHECK(sample_of(with("", user("q") + "," + answer("bad", off) + "," + user("r") + "," +
                               answer(" "))) == "all_masked");
}

TEST_CASE("reasoning is in the sample, or the record is skipped where the template hides it") {
  const std::string record =
      with("", user("q") + "," + answer("a", {{"reasoning_content", "why"}}));
  CHECK(sample_of(record, true) == "#q|#[{why}a|]");
  CHECK(sample_of(record, false) == "hidden_reasoning");
  const std::string blank = with("", user("q") + "," + answer("a", {{"reasoning", " "}}));
  CHECK(sample_of(blank, false) == "#q|#[a|]");
}

TEST_CASE("unread records are listed with their place and what is wrong, the others are kept") {
  const TempDir dir;
  const std::string good = with("", user("q") + "," + answer("a"));
  const std::string text = "[" + good +
                           ",\n{\"id\":\"n\",\"score\":1e999},\n{\"id\":\"b\",\"t\":\"" + "\xff" +
                           std::string(500, 'x') + "\"},{\"id\":\"t\",\"conversations\":[" +
                           answer("a", {{"tool_calls", {1}}}) + "]}]";
  const auto options = options_for(dir, text);
  const auto counts = prepare(options, byte_renderer()).manifest.facts.counts;
  CHECK(counts.at("read") == 4);
  CHECK(counts.at("kept") == 1);
  CHECK(counts.at("skipped.not_json") == 2);
  CHECK(counts.at("skipped.other_content") == 1);
  std::vector<json> lines;
  const std::string skipped = read_file(options.out / "skipped.jsonl");
  for (std::size_t at = 0; at < skipped.size(); at = skipped.find('\n', at) + 1)
    lines.push_back(json::parse(skipped.substr(at, skipped.find('\n', at) - at)));
  REQUIRE(lines.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const char* const ids[] = {"n", "b", "t"};
    CHECK(lines[i].at("id") == ids[i]);
    CHECK(lines[i].at("record") == i + 1);
    const std::size_t offset = lines[i].at("offset");
    CHECK(text.substr(offset, 8) == std::string("{\"id\":\"") + ids[i]);
  }
  CHECK_THAT(lines[0].at("problem").get<std::string>(), Catch::Contains("1e999"));
  CHECK(lines[1].at("problem").get<std::string>().size() < 200);
  CHECK_THAT(lines[2].at("problem").get<std::string>(),
             Catch::Contains("turn 0") && Catch::Contains("tool_calls"));
}
