#include "data/prepare.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "common/base/error.h"
#include "common/base/file.h"
#include "data/conversation.h"
#include "data/token_shards.h"
#include "tests/data/fake_renderer.h"
#include "tests/support/errors.h"
#include "tests/support/shared.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using dex::test::byte_renderer;
using dex::test::TempDir;
using dex::test::texts;
using nlohmann::json;

namespace {

json record(const std::string& id, std::vector<std::string> turns) {
  json list = json::array();
  for (std::size_t i = 0; i < turns.size(); ++i)
    list.push_back({{"from", i % 2 ? "gpt" : "human"}, {"value", turns[i]}});
  return {{"id", id}, {"conversations", list}};
}

// Chats of several parts with texts of many lengths.
json many_records(int count) {
  std::mt19937 random(5);
  json records = json::array();
  for (int i = 0; i < count; ++i)
    records.push_back(
        record("chat" + std::to_string(i / 4) + "_" + std::to_string(i % 4),
               {"question " + std::to_string(i), "answer" + std::string(random() % 3000, 'x')}));
  return records;
}

PrepareOptions options_for(const TempDir& dir, const std::string& text,
                           const std::string& out = "out") {
  PrepareOptions options;
  options.data = dir.write("data.json", text);
  options.out = dir / out;
  options.max_len = 200;
  return options;
}

ExitCode code_of(const PrepareOptions& options) {
  try {
    prepare(options, byte_renderer());
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::done;
}

}  // namespace

TEST_CASE("samples stand in the order of the file, with answers marked and counts that add up") {
  const TempDir dir;
  json records = {record("a_0", {"1", "one"}),
                  record("b_0", {}),
                  record("c_0", {"2", "two"}),
                  record("c_1", {"1", "one"}),
                  record("d", {std::string(300, 'q'), "too late"}),
                  json::object(),
                  record("e", {"3", "three", "open"})};
  auto options = options_for(dir, records.dump());
  options.held_out = 0;
  const auto report = prepare(options, byte_renderer());
  CHECK(texts(options.out, "train") ==
        std::vector<std::string>{"#1|#[one|]", "#2|#[two|]", "#3|#[three|]"});
  auto counts = report.manifest.facts.counts;
  CHECK(counts["read"] == 7);
  CHECK(counts["kept"] == 3);
  CHECK(counts["skipped.no_turns"] == 1);
  CHECK(counts["skipped.duplicate"] == 1);
  CHECK(counts["skipped.no_target"] == 1);
  CHECK(counts["skipped.malformed"] == 1);
  CHECK(counts["repaired.open_question"] == 1);
  std::int64_t sum = counts["kept"];
  for (const auto& [name, count] : counts) sum += name.starts_with("skipped.") ? count : 0;
  CHECK(sum == counts["read"]);
  const std::string skipped = read_file(options.out / "skipped.jsonl");
  CHECK(std::count(skipped.begin(), skipped.end(), '\n') == 4);
  CHECK_THAT(skipped, Catch::Contains(R"({"id":"d","reason":"no_target","record":4})"));
}

TEST_CASE("a record with an id that the model has no row for is skipped, the others are kept") {
  const TempDir dir;
  json records = {record("a", {"1", "one"}), record("b", {"2", "zz"}), record("c", {"z", "3"})};
  auto options = options_for(dir, records.dump());
  options.held_out = 0;
  Renderer renderer = byte_renderer();
  renderer.vocabulary = 10 + 'z';
  const auto report = prepare(options, renderer);
  CHECK(report.manifest.facts.counts.at("kept") == 1);
  CHECK(report.manifest.facts.counts.at("skipped.past_rows") == 2);
  CHECK(report.manifest.facts.vocabulary == 10 + 'z');
  CHECK(texts(options.out, "train") == std::vector<std::string>{"#1|#[one|]"});
  CHECK_THAT(read_file(options.out / "skipped.jsonl"),
             Catch::Contains(R"({"id":"b","reason":"past_rows","record":1})"));
}

TEST_CASE("any number of threads writes the same bytes") {
  const TempDir dir;
  const std::string text = many_records(300).dump(1);
  std::set<std::string> shards, manifests, skipped;
  for (int threads : {1, 4, 13}) {
    auto options = options_for(dir, text, "out" + std::to_string(threads));
    options.threads = threads;
    options.held_out = 0.3;
    prepare(options, byte_renderer());
    shards.insert(read_file(options.out / "train-00000.h5") +
                  read_file(options.out / "held_out-00000.h5"));
    manifests.insert(read_file(options.out / "MANIFEST.json"));
    skipped.insert(read_file(options.out / "skipped.jsonl"));
  }
  CHECK(shards.size() == 1);
  CHECK(manifests.size() == 1);
  CHECK(skipped.size() == 1);
}

TEST_CASE("all parts of a chat are in one split, and the split is of about the size asked for") {
  const TempDir dir;
  auto options = options_for(dir, many_records(2000).dump());
  options.held_out = 0.25;
  prepare(options, byte_renderer());
  const auto chats_of = [&](const std::string& split) {
    std::set<int> chats;
    for (const std::string& text : texts(options.out, split))
      chats.insert(std::stoi(text.substr(10)) / 4);
    return chats;
  };
  const auto train = chats_of("train"), held_out = chats_of("held_out");
  for (int chat : held_out) CHECK_FALSE(train.count(chat));
  CHECK(train.size() + held_out.size() == 500);
  CHECK(held_out.size() > 85);
  CHECK(held_out.size() < 165);
}

TEST_CASE("samples are no longer than the model has positions") {
  CHECK(sample_length({}, 0) == 1024);
  CHECK(sample_length({}, 1024) == 1024);
  CHECK(sample_length({}, 131072) == 1024);
  CHECK(sample_length({}, 1023) == 1023);
  CHECK(sample_length({}, 512) == 512);
  CHECK(sample_length(512, 512) == 512);
  CHECK(sample_length(8192, 0) == 8192);
  CHECK(sample_length(8192, 131072) == 8192);
  for (const std::size_t asked : {513, 2048})
    test::check_refused(ExitCode::usage, {"--max-len " + std::to_string(asked), "512 positions"},
                        [&] { sample_length(asked, 512); });
}

TEST_CASE("a cut file is refused with code 74 and leaves nothing, unless that is allowed") {
  const TempDir dir;
  const std::string whole = many_records(20).dump();
  const std::string text = whole.substr(0, whole.find("chat2_1"));  // inside record 9
  auto options = options_for(dir, text);
  CHECK(code_of(options) == ExitCode::io);
  CHECK_THROWS_WITH(
      prepare(options, byte_renderer()),
      Catch::Contains("record 9") && Catch::Contains("byte " + std::to_string(text.size())));
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
  options.allow_truncated = true;
  const auto report = prepare(options, byte_renderer());
  CHECK(report.manifest.facts.counts.at("read") == 9);
  CHECK(report.manifest.source.cut);
  CHECK(report.manifest.source.cut_record == 9);
  CHECK(text.substr(report.manifest.source.cut_offset, 1) == "{");
}

TEST_CASE("one object a line gives the samples of the array, a bad line costs itself") {
  const TempDir dir;
  std::string lines;
  for (const json& one : many_records(20)) lines += one.dump() + "\r\n";
  auto array = options_for(dir, many_records(20).dump());
  prepare(array, byte_renderer());
  auto options = options_for(dir, lines.insert(lines.find('\n') + 1, "{\"id\":\n"), "lines");
  const auto counts = prepare(options, byte_renderer()).manifest.facts.counts;
  CHECK(counts.at("read") == 21);
  CHECK(counts.at("skipped.not_json") == 1);
  CHECK(texts(options.out, "train") == texts(array.out, "train"));
  options = options_for(dir, lines.substr(0, lines.size() - 10), "cut");
  CHECK(code_of(options) == ExitCode::io);
  options.allow_truncated = true;
  CHECK(prepare(options, byte_renderer()).manifest.facts.counts.at("read") == 20);
}

TEST_CASE("a limit never looks past its records") {
  const TempDir dir;
  const std::string whole = many_records(20).dump();
  const std::string text = whole.substr(0, whole.find("chat2_1")) + "}}} garbage";
  auto options = options_for(dir, text);
  options.limit = 9;
  CHECK(prepare(options, byte_renderer()).manifest.facts.counts.at("read") == 9);
  options.out = dir / "more";
  options.limit = 10;
  CHECK(code_of(options) == ExitCode::io);
}

TEST_CASE("broken inputs and options end with the right code and leave nothing") {
  const TempDir dir;
  for (const char* text : {"", "[", "[{}", "[{}]]", "[{\"id\": 1}", "no json"}) {
    CAPTURE(text);
    CHECK(code_of(options_for(dir, text)) == ExitCode::io);
  }
  auto open = options_for(dir, "[");
  open.allow_truncated = true;
  CHECK(code_of(open) == ExitCode::io);
  CHECK(code_of(options_for(dir, "[]")) == ExitCode::usage);
  CHECK(code_of(options_for(dir, "[{}]")) == ExitCode::usage);
  CHECK(code_of(options_for(dir, "[{\"id\": }]")) == ExitCode::usage);
  auto absent = options_for(dir, "[]");
  absent.data = dir / "absent.json";
  CHECK(code_of(absent) == ExitCode::usage);
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("an existing data set is never overwritten, an empty directory is taken") {
  const TempDir dir;
  auto options = options_for(dir, many_records(3).dump());
  options.held_out = 0;
  make_directory(options.out);
  CHECK(code_of(options) == ExitCode::done);
  CHECK(code_of(options) == ExitCode::usage);
  CHECK(TokenShards::open(options.out, "train").size() == 3);
  options.out = dir / "slash/";
  CHECK(code_of(options) == ExitCode::done);
  CHECK(std::filesystem::exists(dir / "slash/MANIFEST.json"));
}

TEST_CASE("a disk that fills up ends with code 74 and leaves nothing") {
  const TempDir dir;
  const auto options = options_for(dir, many_records(200).dump());
  for (const rlim_t limit : {0, 1000, 30000, 100000}) {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit size{limit, limit};
      setrlimit(RLIMIT_FSIZE, &size);
      std::exit(int(code_of(options)));
    }
    int status = 0;
    waitpid(child, &status, 0);
    CAPTURE(limit, status);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 74);
    CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
  }
}

TEST_CASE("bad records are skipped in file order, whatever thread meets them") {
  const TempDir dir;
  std::string text = many_records(40).dump();
  for (const char* id : {"chat3_1", "chat8_2"}) text.insert(text.find(id) - 1, "'");
  auto options = options_for(dir, text);
  options.threads = 4;
  const auto counts = prepare(options, byte_renderer()).manifest.facts.counts;
  CHECK(counts.at("kept") == 38);
  CHECK(counts.at("skipped.not_json") == 2);
  const std::string skipped = read_file(options.out / "skipped.jsonl");
  CHECK_THAT(skipped, Catch::Contains(R"("record":13)") && Catch::Contains(R"("record":34)"));
  CHECK(skipped.find(R"("record":13)") < skipped.find(R"("record":34)"));
}

TEST_CASE("the shared span cases: targets are the answers and their ends, user text never") {
  const auto path = test::shared("cases/d-c2-spans.json");
  if (!path) return;
  const TempDir dir;
  PrepareOptions options;
  options.data = *path;
  options.out = dir / "out";
  options.max_len = 64;
  options.held_out = 0;
  prepare(options, byte_renderer());
  const auto all = texts(options.out, "train");
  REQUIRE(all.size() == 5);
  // the answer before the first question is dropped, not trained on
  CHECK(all[0] == "#user message|#[ok|]");
  CHECK(all[1] == "#Q|#[answer with spaces   \n\n|]");
  CHECK_THAT(all[2], Catch::StartsWith("#Q|#[word word ") && !Catch::Contains("|]"));
  CHECK(all[4] == "#?|#[.|]#?|#[!|]");
}

TEST_CASE("the shared masked-out case keeps its one good sample") {
  const auto path = test::shared("cases/d-l1-allmasked.json");
  if (!path) return;
  const TempDir dir;
  PrepareOptions options;
  options.data = *path;
  options.out = dir / "out";
  options.max_len = 64;
  options.held_out = 0;
  const auto counts = prepare(options, byte_renderer()).manifest.facts.counts;
  CHECK(counts.at("read") == 3);
  CHECK(counts.at("kept") == 1);
  CHECK(counts.at("skipped.no_answer") == 1);
  CHECK(counts.at("skipped.no_target") == 1);
}
