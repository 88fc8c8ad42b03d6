// launch/regenerate with a tiny model: whole, and killed in the middle.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/support/byte_tokenizer.h"
#include "tests/support/program.h"
#include "tests/support/tiny_model.h"

namespace {

namespace fs = std::filesystem;
using dex::test::contents;
using dex::test::TempDir;
using nlohmann::json;

// Chats of one to three questions; some ask the same.
std::string conversations() {
  json records = json::array();
  for (int i = 0; i < 24; ++i) {
    json turns = json::array();
    for (int turn = 0; turn < 1 + i % 3; ++turn) {
      turns.push_back(
          {{"from", "human"}, {"value", "question " + std::to_string(turn == 0 ? i % 20 : i)}});
      turns.push_back({{"from", "gpt"}, {"value", "an old answer"}});
    }
    records.push_back({{"id", "chat" + std::to_string(i) + "_0"}, {"conversations", turns}});
  }
  records.push_back({{"id", "empty"}, {"conversations", json::array()}});
  records.push_back({{"id", "long"},
                     {"conversations",
                      {{{"from", "human"}, {"value", std::string(300, 'q')}},
                       {{"from", "gpt"}, {"value", "a"}}}}});
  return records.dump();
}

struct Regeneration {
  TempDir dir;
  fs::path model =
      dex::test::TinyModel{.vocab = dex::test::kByteVocabulary, .scale = 1.0f, .seed = 7}.write(
          dir / "model");
  fs::path data = dir.write("conversations.json", conversations());

  Regeneration() {
    dex::test::write_byte_tokenizer(model);
    json ends = json::array();  // many, so that a random model ends some of its answers
    for (int id = 0; id < dex::test::kByteVocabulary; id += 9) ends.push_back(id);
    std::ofstream(model / "generation_config.json") << json{{"eos_token_id", ends}}.dump();
  }
  std::string script() const {
    return std::string("DEX=") + DEX_BINARY_DIR + "/dex " + DEX_SOURCE_DIR + "/launch/regenerate";
  }
  std::string arguments(const std::string& out, const std::string& more = "") const {
    return "--model " + model.string() + " --conversations " + data.string() + " --out " +
           (dir / out).string() +
           " --template chatml --max-len 120 --answer-tokens 30 --held-out 0.2 --piece 3 " + more +
           " -- --threads 1 --depths 2";
  }
};

std::map<std::string, std::string> results_in(const fs::path& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    const std::string name = entry.path().lexically_relative(dir).string();
    if (entry.is_regular_file() &&
        (name.starts_with("data/") || name.ends_with("questions.jsonl") ||
         name.ends_with("answers.jsonl")))
      files[name] = contents(entry.path());
  }
  return files;
}

std::size_t answered_pieces(const fs::path& out) {
  std::size_t count = 0;
  if (!fs::exists(out)) return 0;
  for (const auto& entry :
       fs::recursive_directory_iterator(out, fs::directory_options::skip_permission_denied))
    count += entry.path().parent_path().filename() == "answers" &&
             entry.path().extension() == ".jsonl" &&
             entry.path().string().find(".stats") == std::string::npos;
  return count;
}

// Starts the command in a process group of its own and kills all of it once `pieces` more are
// answered.
void kill_after(const std::string& command, const fs::path& out, std::size_t pieces) {
  const std::size_t wanted = answered_pieces(out) + pieces;
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/bin/bash", "bash", "-c", (command + " >/dev/null 2>&1").c_str(), nullptr);
    _exit(127);
  }
  setpgid(child, child);
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (answered_pieces(out) < wanted && waitpid(child, nullptr, WNOHANG) == 0 &&
         std::chrono::steady_clock::now() < late)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  kill(-child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace

TEST_CASE("answers are regenerated turn by turn, every record counted") {
  const Regeneration job;
  const auto outcome = dex::test::run_program(job.script(), job.arguments("out"));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const json result = json::parse(outcome.out.substr(outcome.out.rfind("{\"bytes\"")));
  const json counts = result.at("counts");
  std::int64_t sum = counts.at("kept");
  for (const auto& [name, count] : counts.items())
    sum += name.starts_with("skipped.") ? count.get<std::int64_t>() : 0;
  CHECK(counts.at("read") == 26);
  CHECK(sum == 26);
  CHECK(counts.at("skipped.no_turns") == 1);
  CHECK(counts.at("skipped.unanswered").get<int>() >= 1);  // the long one was not asked
  const std::string first = contents(job.dir / "out/round-1/questions.jsonl");
  CHECK(std::count(first.begin(), first.end(), '\n') == 20);  // what two records ask is asked once
  // An answer of round 1 stands in what is asked in round 2.
  CHECK(contents(job.dir / "out/round-2/questions.jsonl").find("assistant") != std::string::npos);
  CHECK(contents(job.dir / "out/round-2/questions.jsonl").find("an old answer") ==
        std::string::npos);

  const auto again = dex::test::run_program(job.script(), job.arguments("out"));
  CHECK(again.code == 0);
  CHECK(again.err.find("data: there") != std::string::npos);
  CHECK(again.err.find("== piece") == std::string::npos);
}

TEST_CASE("a regeneration that is killed goes on, to the same bytes") {
  const Regeneration job;
  REQUIRE(dex::test::run_program(job.script(), job.arguments("whole")).code == 0);
  const fs::path out = job.dir / "broken";
  for (const std::size_t pieces : {1, 2, 4})
    kill_after(job.script() + " " + job.arguments("broken"), out, pieces);
  CHECK_FALSE(fs::exists(out / "data"));  // the kills were in the middle
  const std::size_t answered = answered_pieces(out);
  CHECK(answered >= 7);
  const auto outcome = dex::test::run_program(job.script(), job.arguments("broken"));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const auto whole = results_in(job.dir / "whole");
  CHECK(whole.size() >= 8);
  CHECK(results_in(out) == whole);
  // Only the pieces that were not there were decoded.
  std::size_t decoded = 0;
  for (std::size_t at = 0; (at = outcome.err.find("== piece", at)) != std::string::npos; ++at)
    ++decoded;
  CHECK(decoded == answered_pieces(out) - answered);
}

TEST_CASE("a directory begun with other options or another model is refused") {
  const Regeneration job;
  REQUIRE(dex::test::run_program(job.script(), job.arguments("out")).code == 0);
  CHECK(dex::test::run_program(job.script(), job.arguments("out", "--turns 1")).code == 2);
  dex::test::TinyModel{.vocab = dex::test::kByteVocabulary, .scale = 1.0f, .seed = 8}.write(
      job.model);
  CHECK(dex::test::run_program(job.script(), job.arguments("out")).code == 2);
  for (const char* wrong : {"", "--model", "--nonsense 3",
                            "--model /nonexistent --conversations /nonexistent --out /tmp/x"})
    CHECK(dex::test::run_program(job.script(), wrong).code == 2);
}

TEST_CASE("shares of the pieces together give what one run gives") {
  const Regeneration job;
  std::string jobs;
  for (int i = 0; i < 10; ++i)
    jobs += json{{"custom_id", std::to_string(i)},
                 {"prompt", i == 4 ? json(4) : json("text " + std::to_string(i))}}
                .dump() +
            "\n";
  const std::string file = job.dir.write("jobs.jsonl", jobs).string();
  const auto run = [&](const std::string& out, const std::string& more) {
    return dex::test::run_program(
        std::string("DEX=") + DEX_BINARY_DIR + "/dex " + DEX_SOURCE_DIR + "/launch/decode_pieces",
        "--jobs " + file + " --out " + (job.dir / out).string() + " --piece 2 " + more +
            " -- --max-tokens 4 --threads 1 --model " + job.model.string());
  };
  CHECK(run("one", "").code == 3);  // job 4 is bad
  CHECK(run("three", "--share 2/3").code == 0);
  CHECK(run("three", "--share 0/3").code == 0);
  CHECK_FALSE(fs::exists(job.dir / "three/answers.jsonl"));
  CHECK(run("three", "--share 1/3").code == 3);
  CHECK(contents(job.dir / "three/answers.jsonl") == contents(job.dir / "one/answers.jsonl"));
  const std::string all = contents(job.dir / "one/answers.jsonl");
  CHECK(std::count(all.begin(), all.end(), '\n') == 10);
  CHECK(run("three", "--share 3/3").code == 2);
  CHECK(run("three", "--piece 4").code == 2);
}
