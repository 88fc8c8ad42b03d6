#include "data/questions.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/file.h"
#include "data/answers.h"
#include "data/token_shards.h"
#include "tests/data/fake_renderer.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using dex::test::byte_renderer;
using dex::test::TempDir;
using dex::test::texts;
using nlohmann::json;

namespace {

json record(const std::string& id, const std::vector<std::string>& turns) {
  json list = json::array();
  for (std::size_t i = 0; i < turns.size(); ++i)
    list.push_back({{"from", i % 2 ? "gpt" : "human"}, {"value", turns[i]}});
  return {{"id", id}, {"conversations", list}};
}

PrepareOptions options_for(const TempDir& dir, const json& records) {
  PrepareOptions options;
  options.data = dir.write("data.json", records.dump());
  options.max_len = 60;
  options.held_out = 0;
  return options;
}

std::vector<json> lines_of(const std::filesystem::path& path) {
  std::vector<json> lines;
  const std::string text = read_file(path);
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    lines.push_back(json::parse(text.substr(at, text.find('\n', at) - at)));
  return lines;
}

std::string row(const std::string& id, const std::string& text,
                const std::string& reason = "stop") {
  const json choice = {{"index", 0},
                       {"finish_reason", reason},
                       {"message", {{"role", "assistant"}, {"content", text}}}};
  return json{{"custom_id", id},
              {"response", {{"status_code", 200}, {"body", {{"choices", {choice}}}}}},
              {"error", nullptr}}
             .dump() +
         "\n";
}

std::string error_row(const std::string& id) {
  return json{{"custom_id", id},
              {"response", {{"status_code", 400}, {"body", nullptr}}},
              {"error", {{"code", "invalid_request"}}}}
             .dump() +
         "\n";
}

// The model of these tests answers the last message by its text in upper case.
std::string answer_to(const json& job) {
  std::string text = job.at("body").at("messages").back().at("content");
  for (char& c : text) c = char(std::toupper(c));
  return row(job.at("custom_id"), text);
}

std::int64_t sum_of(const std::map<std::string, std::int64_t>& counts) {
  std::int64_t sum = counts.at("kept");
  for (const auto& [name, count] : counts) sum += name.starts_with("skipped.") ? count : 0;
  return sum;
}

std::vector<std::string> samples_of(PrepareOptions options, const std::filesystem::path& out) {
  options.out = out;
  const auto counts = prepare(options, byte_renderer()).manifest.facts.counts;
  CHECK(sum_of(counts) == counts.at("read"));
  return texts(out, "train");
}

}  // namespace

TEST_CASE("questions are asked turn by turn, the answers so far being part of the next one") {
  const TempDir dir;
  const json records = {record("a", {"one", "old", "two", "old"}), record("b", {"three", "old"}),
                        record("c", {}), record("d", {"one", "other", "two", "other"}),
                        record("e", {std::string(70, 'q'), "old"})};
  auto options = options_for(dir, records);
  std::vector<std::vector<std::string>> asked;  // per round, the texts of each job's messages
  for (int round = 1; round <= 3; ++round) {
    const auto jobs = dir / ("jobs" + std::to_string(round)),
               answers = dir / ("answers" + std::to_string(round));
    const auto counts =
        write_questions(options, {.out = jobs, .answer_tokens = 20}, byte_renderer()).counts;
    CHECK(counts.at("read") == 5);
    CHECK(sum_of(counts) == 5);
    std::string rows;
    asked.emplace_back();
    for (const json& job : lines_of(jobs)) {
      asked.back().emplace_back();
      for (const json& message : job.at("body").at("messages"))
        asked.back().back() += message.at("content").get<std::string>() + "|";
      rows += answer_to(job);
    }
    CHECK(counts.at("kept") == std::int64_t(asked.back().size()));
    if (round == 1) {
      CHECK(counts.at("skipped.duplicate") == 1);  // d asks what a asks
      CHECK(counts.at("skipped.no_target") == 1);  // e leaves no room
      CHECK(lines_of(jobs)[0].at("body").at("max_tokens") == 20);
    }
    if (rows.empty()) break;
    write_file(answers, rows);
    options.answers.push_back(answers);
  }
  CHECK(asked == std::vector<std::vector<std::string>>{{"one|", "three|"}, {"one|ONE|two|"}, {}});
  CHECK(samples_of(options, dir / "out") ==
        std::vector<std::string>{"#one|#[ONE|]#two|#[TWO|]", "#three|#[THREE|]"});
}

TEST_CASE("a question's job asks for no more tokens than the sample has room for") {
  const TempDir dir;
  const auto options = options_for(dir, json::array({record("a", {std::string(50, 'q'), "old"})}));
  write_questions(options, {.out = dir / "jobs", .answer_tokens = 20}, byte_renderer());
  // the byte renderer frames a text by two ids
  CHECK(lines_of(dir / "jobs").at(0).at("body").at("max_tokens") == 60 - 52);
  write_questions(options, {.out = dir / "jobs", .answer_tokens = 3}, byte_renderer());
  CHECK(lines_of(dir / "jobs").at(0).at("body").at("max_tokens") == 3);
}

TEST_CASE("a limit of turns asks no further") {
  const TempDir dir;
  auto options = options_for(dir, json::array({record("a", {"one", "old", "two", "old"})}));
  write_questions(options, {.out = dir / "jobs", .turns = 1}, byte_renderer());
  options.answers = {dir.write("answers", answer_to(lines_of(dir / "jobs").at(0)))};
  const auto counts =
      write_questions(options, {.out = dir / "more", .turns = 1}, byte_renderer()).counts;
  CHECK(read_file(dir / "more").empty());
  CHECK(counts.at("skipped.nothing_to_ask") == 1);
  CHECK(samples_of(options, dir / "out") == std::vector<std::string>{"#one|#[ONE|]"});
}

TEST_CASE("an answer cut by its limit ends its sample, and its end is no target") {
  const TempDir dir;
  auto options = options_for(
      dir, json::array({record("a", {"one", "old", "two", "old"}), record("b", {"long", "old"})}));
  write_questions(options, {.out = dir / "jobs"}, byte_renderer());
  const auto jobs = lines_of(dir / "jobs");
  options.answers = {
      dir.write("answers", row(jobs.at(0).at("custom_id"), "half an ans\xEF\xBF\xBD", "length") +
                               row(jobs.at(1).at("custom_id"), std::string(100, 'x'), "length"))};
  CHECK(
      samples_of(options, dir / "out") ==
      std::vector<std::string>{"#one|#[half an ans]", "#long|#[" + std::string(60 - 7, 'x') + "]"});
  CHECK(write_questions(options, {.out = dir / "more"}, byte_renderer())
            .counts.at("skipped.nothing_to_ask") == 2);
}

TEST_CASE("an end token that the length limit keeps out anyway is not taken off twice") {
  const TempDir dir;
  // around the limit, and around what is rendered to see the end
  for (int total = 50; total <= 130; total += total == 68 ? 50 : 1) {
    CAPTURE(total);
    const std::string text(std::size_t(total) - 13, 'u');
    auto options = options_for(dir, json::array({record("a", {"q", "old", text, "old"})}));
    const std::vector<Message> first{{"user", "q"}},
        second{{"user", "q"}, {"assistant", "A"}, {"user", text}};
    options.answers = {dir.write(
        "answers", row(question_id(first), "A") + row(question_id(second), "zzz", "length"))};
    const std::string whole = "#q|#[A|]#" + text + "|#[zzz";
    std::string wanted;  // the first 60 ids: brackets of the marks are none
    for (int ids = 0; const char c : whole) {
      if (c != '[' && c != ']' && ++ids > 60) break;
      wanted += c;
    }
    if (std::count(wanted.begin(), wanted.end(), '[') >
        std::count(wanted.begin(), wanted.end(), ']'))
      wanted += ']';
    if (wanted.ends_with("[]")) wanted.resize(wanted.size() - 2);
    CHECK(samples_of(options, dir / ("out" + std::to_string(total))) ==
          std::vector<std::string>{wanted});
  }
}

TEST_CASE("a conversation whose question has no answer ends before it, and is counted") {
  const TempDir dir;
  auto options =
      options_for(dir, json::array({record("a", {"one", "old"}), record("b", {"two", "old"}),
                                    record("c", {"three", "old", "four", "old"})}));
  write_questions(options, {.out = dir / "jobs"}, byte_renderer());
  const auto jobs = lines_of(dir / "jobs");
  options.answers = {dir.write("answers", error_row(jobs.at(0).at("custom_id")) +
                                              row(jobs.at(1).at("custom_id"), " \n") +
                                              answer_to(jobs.at(2)))};
  const auto asked = write_questions(options, {.out = dir / "more"}, byte_renderer()).counts;
  CHECK(asked.at("skipped.unanswered") == 2);
  CHECK(asked.at("kept") == 1);
  options.out = dir / "out";
  const auto counts = prepare(options, byte_renderer()).manifest.facts.counts;
  CHECK(counts.at("kept") == 1);
  CHECK(counts.at("skipped.unanswered") == 2);
  CHECK(counts.at("repaired.open_question") == 1);
  CHECK(counts.at("repaired.cut_answer") == 0);
}

TEST_CASE("answers to other questions, twice, or of another form are refused with their place") {
  const TempDir dir;
  auto options = options_for(dir, json::array({record("a", {"one", "old"})}));
  options.out = dir / "out";
  const std::string id = question_id(std::vector<Message>{{"user", "one"}});
  const auto check_answers = [&](ExitCode code, const std::vector<std::string>& words,
                                 const std::string& text) {
    options.answers = {dir.write("answers", text)};
    test::check_refused(code, words, [&] { prepare(options, byte_renderer()); });
  };
  check_answers(ExitCode::usage, {"1 of 2 answers", "answers line 2"},
                row(id, "ONE") + row("question-other", "X"));
  for (const std::string& bad :
       {row(id, "ONE") + row(id, "ONE"), row(id, "ONE") + "not JSON\n", row(id, "ONE") + "{}\n",
        row(id, "ONE") + row(id, "TWO").substr(0, 90)}) {
    CAPTURE(bad);
    check_answers(ExitCode::io, {"answers line 2"}, bad);
  }
  CHECK_FALSE(std::filesystem::exists(dir / "out"));
}

TEST_CASE("data prepared without new answers knows nothing of them") {
  const TempDir dir;
  auto options = options_for(dir, json::array({record("a", {"one", "old"})}));
  options.out = dir / "out";
  const auto counts = prepare(options, byte_renderer()).manifest.facts.counts;
  CHECK_FALSE(counts.contains("skipped.unanswered"));
  CHECK_FALSE(counts.contains("repaired.cut_answer"));
}
