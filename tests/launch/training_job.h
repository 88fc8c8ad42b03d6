// A training run of the program on a tiny model, small enough to be run hundreds of times.
#pragma once
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoints/checkpoint.h"
#include "common/base/file.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/metrics.h"
#include "tests/support/port.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex::test {

class TrainingJob {
 public:
  // Runs of `ranks` processes, whose result must be that of one.
  explicit TrainingJob(int ranks = 1) : ranks_(ranks) {
    TinyModel{.hidden = 16, .heads = 2, .kv_heads = 1, .intermediate = 24, .vocab = kByteVocabulary}
        .write(dir / "model");
    write_byte_tokenizer(dir / "model");
    nlohmann::json chats = nlohmann::json::array();
    for (int i = 0; i < 30; ++i)
      chats.push_back({{"id", std::to_string(i)},
                       {"conversations",
                        {{{"from", "human"}, {"value", "question " + std::to_string(i)}},
                         {{"from", "gpt"},
                          {"value", std::string(std::size_t(3 + i), 'a') + std::to_string(i)}}}}});
    dir.write("chats.json", chats.dump());
    REQUIRE(Process(prepare(), dir / "log").wait() == 0);
    REQUIRE(Process(command(whole()), dir / "log").wait() == 0);
    result = result_of(whole());
    const auto start = std::chrono::steady_clock::now();
    finish(dir / "timed");
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  Command prepare() const {
    return {program(), "--quiet",          "prepare", "--model",    dir / "model",
            "--data",  dir / "chats.json", "--out",   dir / "data", "--template",
            "chatml",  "--held-out",       "0.2",     "--threads",  "2"};
  }
  // The commands of one run, a rank each. Always with --resume: the first start has nothing to go
  // on from.
  std::vector<Command> train(const std::filesystem::path& out) const {
    if (ranks_ == 1) return {command(out)};
    std::vector<Command> all;
    const std::string port = std::to_string(Port().number()), world = std::to_string(ranks_);
    for (int rank = 0; rank < ranks_; ++rank) {
      Command line{"RANK=" + std::to_string(rank),
                   "WORLD_SIZE=" + world,
                   "LOCAL_RANK=" + std::to_string(rank),
                   "LOCAL_WORLD_SIZE=" + world,
                   "MASTER_ADDR=127.0.0.1",
                   "MASTER_PORT=" + port};
      for (const std::string& word : command(out)) line.push_back(word);
      all.push_back(std::move(line));
    }
    return all;
  }
  std::filesystem::path whole() const { return dir / "whole"; }

  // Path below `out` -> bytes, of all that a run leaves. Metrics without the times, an evaluation
  // that was repeated once.
  static std::map<std::string, std::string> result_of(const std::filesystem::path& out) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(out))
      if (entry.is_regular_file())
        files[std::filesystem::relative(entry.path(), out).string()] = read_file(entry.path());
    files["metrics.jsonl"] = metrics_without_times(files["metrics.jsonl"], /*once=*/true);
    std::erase_if(files,
                  // one a start
                  [](const auto& file) { return file.first.starts_with("tensorboard/"); });
    return files;
  }
  void check_result(const std::filesystem::path& out) const {
    const auto seen = result_of(out);
    for (const auto& [name, bytes] : result) {
      INFO(name << " in " << out);
      REQUIRE(seen.contains(name));
      REQUIRE(seen.at(name) == bytes);
    }
    for (const auto& [name, bytes] : seen) {
      INFO(name << " in " << out);
      REQUIRE(result.contains(name));
    }
  }
  std::string log(int rank = 0) const { return read_file(dir / ("log-" + std::to_string(rank))); }
  void finish(const std::filesystem::path& out) const {
    for (Process& process : start_all(train(out), dir.path())) {
      const int code = process.wait();
      INFO(log());
      REQUIRE(code == 0);
    }
    check_result(out);
  }

  // --init-timeout, that of a busy machine once it is known how busy.
  double join_seconds() const { return seconds > 0 ? std::max(10.0, 5 * seconds) : 300; }
  int ranks() const { return ranks_; }
  static std::string program() { return std::string(DEX_BINARY_DIR) + "/dex"; }

  TempDir dir{memory_directory()};
  std::map<std::string, std::string> result;
  double seconds = 0;  // of an unbroken run
  Command options;     // more of them

 private:
  Command command(const std::filesystem::path& out) const {
    Command line{program(),
                 "train",
                 "--model",
                 dir / "model",
                 "--data",
                 dir / "data",
                 "--depths",
                 "1,3",
                 "--out",
                 out,
                 "--steps",
                 "12",
                 "--batch-size",
                 "4",
                 "--micro-batch",
                 "2",
                 "--lr",
                 "1e-2",
                 "--dtype",
                 "f32",
                 "--threads",
                 "1",
                 "--device",
                 "cpu",
                 "--save-every",
                 "1",
                 "--keep",
                 "2",
                 "--eval-samples",
                 "3",
                 "--resume",
                 "--init-timeout",
                 std::to_string(join_seconds())};
    line.insert(line.end(), options.begin(), options.end());
    return line;
  }

  int ranks_;
};

}  // namespace dex::test
