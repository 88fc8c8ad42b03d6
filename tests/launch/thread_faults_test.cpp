// The program where the system gives it no more threads from the k-th on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "tests/launch/training_job.h"
#include "tests/support/scale.h"

using dex::test::Command;
using dex::test::Process;
using dex::test::TrainingJob;

namespace {

constexpr double kPatience = 120;  // for what should end by itself, on a busy machine

Command with_threads(Command command, int given) {
  command.insert(command.begin(), {std::string("LD_PRELOAD=") + DEX_THREAD_FAULTS,
                                   "DEX_FAULT_THREAD=" + std::to_string(given)});
  return command;
}

// Of `ranks` the last one is given so many. All end: with 75, which names what is missing, or done.
// Returns whether they were done.
bool run_with_threads(std::vector<Command> ranks, int given, const TrainingJob& job) {
  ranks.back() = with_threads(ranks.back(), given);
  auto processes = dex::test::start_all(ranks, job.dir.path());
  bool done = true;
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const auto code = processes[rank].wait(kPatience);
    INFO(given << " threads, rank " << rank << ": " << job.log(int(rank)));
    REQUIRE((code == 75 || code == 0));
    if (code == 75 && rank + 1 == processes.size())
      REQUIRE(job.log(int(rank)).find("Resource temporarily unavailable") != std::string::npos);
    done = done && code == 0;
  }
  return done;
}

// From none on until there are enough.
void run_until_done(const std::function<std::vector<Command>()>& ranks, const TrainingJob& job,
                    int least_failures) {
  int given = 0;
  while (!run_with_threads(ranks(), given, job)) REQUIRE(++given < 200);
  CHECK(given >= least_failures);
}

}  // namespace

TEST_CASE("dex prepare ends with an error when it cannot have its threads", "[faults]") {
  const TrainingJob job;
  run_until_done(
      [&] {
        std::filesystem::remove_all(job.dir / "data");
        return std::vector<Command>{job.prepare()};
      },
      job, 2);
}

TEST_CASE("dex train ends with an error when it cannot have its threads, and so do its peers",
          "[faults]") {
  const TrainingJob job(GENERATE(1, 2));
  const auto out = job.dir / "out";
  run_until_done([&] { return job.train(out); }, job, 1);
  job.check_result(out);
}

TEST_CASE("dex train ends with an error when OpenMP cannot have its threads", "[faults]") {
  const TrainingJob job;
  auto commands = job.train(job.dir / "out");
  *std::next(std::find(commands[0].begin(), commands[0].end(), "--threads")) = "4";
  run_until_done(
      [&] {
        std::filesystem::remove_all(job.dir / "out");
        return commands;
      },
      job, 4);
}

TEST_CASE("explorers and pools that cannot all be born end dex decode with an error", "[faults]") {
  const TrainingJob job;
  run_until_done(
      [&] {
        return std::vector<Command>{{job.program(), "decode", "--method", "dex", "--model",
                                     job.dir / "model", "--depths", "1,2,3", "--threads", "8",
                                     "--prompt-ids", "1,2,3", "--max-tokens", "4"}};
      },
      job, 4);
}

// Digests of tensors, which nobody compares here, would be taken by threads of their own.
TEST_CASE("plain decoding without adapters, and its bench, need no thread beside their own") {
  const TrainingJob job;
  const std::vector<Command> commands{
      {"decode", "--method", "ar", "--prompt-ids", "1,2,3", "--max-tokens", "4"},
      {"bench", "--methods", "ar", "--tokens", "2", "--prompt-tokens", "2", "--repeats", "1"}};
  for (const Command& words : commands) {
    Command command{job.program()};
    command.insert(command.end(), words.begin(), words.end());
    command.insert(command.end(), {"--model", job.dir / "model", "--threads", "1"});
    Process process(with_threads(command, 0), job.dir / "log");
    const auto code = process.wait(kPatience);
    CAPTURE(process.log());
    CHECK(code == 0);
  }
}
