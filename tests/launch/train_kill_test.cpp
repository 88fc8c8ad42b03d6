// A training run that is killed, asked to stop, or meets a failing disk gives the bytes of the run
// that nothing happened to.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <random>

#include "tests/launch/training_job.h"
#include "tests/support/scale.h"

using namespace dex;
using test::TrainingJob;

namespace {

double draw(std::mt19937& random, double least, double most) {
  return std::uniform_real_distribution<>(least, most)(random);
}

// The newest checkpoint's step; none may be torn, and no step that was there is lost.
std::int64_t checked_step(const std::filesystem::path& out, std::int64_t before) {
  const CheckpointSearch search = newest_checkpoint(out / "checkpoints");
  for (const std::string& reason : search.passed_over) FAIL(reason);
  REQUIRE(search.step.value_or(0) >= before);
  return search.step.value_or(0);
}

// Runs until there were so many kills; every run ends with the bytes of the unbroken one.
void kill_and_resume(const TrainingJob& job, int wanted) {
  std::mt19937 random(17);
  int kills = 0, runs = 0, resumes = 0;
  double longest = 0;  // that the others stayed after a kill
  while (kills < wanted) {
    const auto out = job.dir / ("run-" + std::to_string(++runs));
    std::int64_t step = 0;
    for (bool ended = false; !ended;) {
      auto ranks = test::start_all(job.train(out), job.dir.path());
      ended = test::all_ended_within(
          ranks, std::chrono::duration<double>(draw(random, 0, 1.5 * job.seconds)));
      if (ended) {
        for (test::Process& rank : ranks) REQUIRE(rank.wait() == 0);
      } else {
        auto& victim = ranks[random() % ranks.size()];
        victim.send(SIGKILL);
        REQUIRE((victim.wait() == 1000 + SIGKILL || victim.wait() == 0));  // it may just have ended
        kills += victim.wait() != 0;
        const auto killed = std::chrono::steady_clock::now();
        for (test::Process& rank : ranks)
          if (&rank != &victim) REQUIRE((rank.wait() == 75 || rank.wait() == 0));
        longest = std::max(
            longest,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - killed).count());
      }
      const std::int64_t now = checked_step(out, step);
      resumes += !ended && now > 0;
      step = now;
    }
    job.check_result(out);
    std::filesystem::remove_all(out);
  }
  WARN("of " << job.ranks() << " ranks: " << kills << " kills, " << resumes
             << " resumes from a checkpoint, " << runs
             << " runs equal to the unbroken one; the others stayed " << longest << " s at most");
  // more only where the machine is that slow
  CHECK(longest < job.join_seconds() + 2 + 10 * job.seconds);
}

}  // namespace

TEST_CASE("training killed at random moments and resumed ends with the bytes of the unbroken run",
          "[faults]") {
  const int world = GENERATE(1, 2);
  kill_and_resume(TrainingJob(world), world == 1 ? test::times(10, 200) : test::times(4, 200));
}

TEST_CASE("so does training that keeps the model's states, killed while it writes and reads them",
          "[faults]") {
  TrainingJob job;
  job.options = {"--cache-states", job.dir / "states"};
  kill_and_resume(job, test::times(6, 100));
}

TEST_CASE(
    "training asked to stop at random moments saves and leaves with code 75, or 0 when it is done",
    "[faults]") {
  const int world = GENERATE(1, 2);
  const TrainingJob job(world);
  std::mt19937 random(23);
  const int signals[] = {SIGTERM, SIGINT, SIGUSR1};
  int stopped = 0;
  double longest = 0;
  for (int i = 0; i < (world == 1 ? test::times(9, 120) : test::times(3, 60)); ++i) {
    const int signal = signals[i % 3];
    const auto out = job.dir / "out";
    auto ranks = test::start_all(job.train(out), job.dir.path());
    for (test::Process& rank : ranks) rank.wait_until_prepared_for(signal);
    test::all_ended_within(ranks, std::chrono::duration<double>(
                                      draw(random, 0, i % 2 ? job.seconds : job.seconds / 2)));
    const auto asked = std::chrono::steady_clock::now();
    for (test::Process& rank : ranks) rank.send(signal);
    for (test::Process& rank : ranks) {
      const int code = rank.wait();
      INFO(strsignal(signal) << ", " << code << ", " << job.log());
      REQUIRE((code == 75 || code == 0));
      stopped += code == 75;
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - asked;
    // more only where the machine is that slow
    CHECK(taken.count() < std::max(25.0, 20 * job.seconds));
    longest = std::max(longest, taken.count());
    checked_step(out, 0);
    job.finish(out);
    std::filesystem::remove_all(out);
  }
  CHECK(stopped > 0);
  WARN("of " << world << " ranks: " << stopped << " stopped, the slowest run in " << longest
             << " s");
}

TEST_CASE("a second signal ends training at once, and nothing that was saved is lost", "[faults]") {
  const TrainingJob job;
  std::mt19937 random(29);
  for (int i = 0; i < test::times(2, 20); ++i) {
    const auto out = job.dir / "out";
    test::Process run(job.train(out).at(0), job.dir / "log-0");
    run.wait_until_prepared_for(SIGTERM);
    std::this_thread::sleep_for(std::chrono::duration<double>(draw(random, 0, job.seconds)));
    for (int signals = 0; signals < 2 && !run.ended(); ++signals) {
      run.send(SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const int code = run.wait();
    INFO(code);
    REQUIRE((code == 1000 + SIGTERM || code == 75 || code == 0));
    checked_step(out, 0);
    job.finish(out);
    std::filesystem::remove_all(out);
  }
}

TEST_CASE(
    "whatever file operation of a training run fails, it leaves with code 74 and is resumed to the "
    "same bytes",
    "[faults]") {
  const TrainingJob job;
  int failed = 0;
  for (int call = 1;; call += test::times(61, 1)) {
    const auto out = job.dir / "out";
    test::Command command = job.train(out).at(0);
    const int error = failed % 2 ? ENOSPC : EIO;
    command.insert(
        command.begin(),
        {std::string("LD_PRELOAD=") + DEX_FILE_FAULTS, "DEX_FAULT_ROOT=" + out.string(),
         "DEX_FAULT_CALL=" + std::to_string(call), "DEX_FAULT_ERRNO=" + std::to_string(error)});
    const int code = test::Process(command, job.dir / "log-0").wait();
    INFO("operation " << call << ": " << job.log());
    if (code == 0) break;
    ++failed;
    REQUIRE(code == 74);
    REQUIRE(job.log().find(std::strerror(error)) != std::string::npos);
    REQUIRE(job.log().find("dex: error: ") != std::string::npos);
    REQUIRE(job.log().find(out.string(), job.log().find("dex: error: ")) != std::string::npos);
    job.finish(out);
    std::filesystem::remove_all(out);
  }
  CHECK(failed > test::times(5, 300));
}

TEST_CASE("a file over the size limit is an error with its path, not a signal", "[faults]") {
  const TrainingJob job;
  const auto limited = [&](test::Command command, const std::string& blocks) {
    std::string line = "ulimit -f " + blocks + "; exec";
    for (const std::string& word : command) line += " '" + word + "'";
    const int code = test::Process({"/bin/sh", "-c", line}, job.dir / "log-0").wait();
    INFO(job.log());
    CHECK(code == 74);
    CHECK(job.log().find(std::strerror(EFBIG)) != std::string::npos);
    return job.log();
  };
  const auto out = job.dir / "out";
  // blocks of 512 bytes, or of 1024
  CHECK(limited(job.train(out).at(0), "4").find(out.string()) != std::string::npos);
  job.finish(out);
  auto prepare = job.prepare();
  std::filesystem::remove_all(job.dir / "data");
  CHECK(limited(prepare, "1").find((job.dir / "data").string()) != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(job.dir / "data.tmp"));
  CHECK(test::Process(prepare, job.dir / "log-0").wait() == 0);
}

TEST_CASE("training where the file system has no locks is told so, and goes on when allowed") {
  const TrainingJob job;
  const auto out = job.dir / "out";
  const auto train = [&](int error, const test::Command& more) {
    test::Command command = job.train(out).at(0);
    command.insert(command.begin(), {std::string("LD_PRELOAD=") + DEX_FILE_FAULTS,
                                     "DEX_FAULT_LOCK=" + std::to_string(error)});
    command.insert(command.end(), more.begin(), more.end());
    return test::Process(command, job.dir / "log-0").wait();
  };
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP, 524}) {
    CHECK(train(error, {}) == 74);
    INFO(job.log());
    CHECK(job.log().find("out: its file system gives no lock") != std::string::npos);
    CHECK(job.log().find("--allow-unlocked") != std::string::npos);
    CHECK(job.log().find("another run") == std::string::npos);
  }
  CHECK(train(ENOLCK, {"--allow-unlocked"}) == 0);
  CHECK(job.log().find("a second run there would do harm") != std::string::npos);
  job.check_result(out);
  // readers
  CHECK(test::Process({std::string("LD_PRELOAD=") + DEX_FILE_FAULTS,
                       "DEX_FAULT_LOCK=" + std::to_string(ENOLCK), job.program(), "inspect", out},
                      job.dir / "log-0")
            .wait() == 0);
}

TEST_CASE("quiet commands write nothing but their result") {
  const TrainingJob job;
  std::filesystem::remove_all(job.dir / "data");
  job.dir.write("prompts.jsonl", "{\"prompt\": \"one\"}\n{\"prompt\": \"two\"}\n");
  test::Command train = job.train(job.dir / "out").at(0);
  train.insert(train.begin() + 1, "--quiet");
  for (const test::Command& command :
       {job.prepare(), train,
        test::Command{job.program(), "--quiet", "ead", "--model", job.dir / "model", "--adapters",
                      job.dir / "out", "--prompts", job.dir / "prompts.jsonl", "--out",
                      job.dir / "ead", "--max-tokens", "4"}}) {
    std::string line = "exec 2>" + (job.dir / "stderr").string() + "; exec";
    for (const std::string& word : command) line += " '" + word + "'";
    const int code = test::Process({"/bin/sh", "-c", line}, job.dir / "log-0").wait();
    INFO(line << ": " << read_file(job.dir / "stderr"));
    CHECK(code == 0);
    CHECK(read_file(job.dir / "stderr").empty());
    const std::string result = job.log();
    CHECK(std::count(result.begin(), result.end(), '\n') == 1);
  }
}

TEST_CASE("a system that gives no thread is code 75: a retry can help") {
  const test::TempDir dir;
  const TrainingJob job;
  // no address space has room for a stack of 200 TB
  std::string line = "ulimit -s 200000000000; exec";
  std::filesystem::remove_all(job.dir / "data");
  for (const std::string& word : job.prepare()) line += " '" + word + "'";
  const int code = test::Process({"/bin/sh", "-c", line}, job.dir / "log-0").wait();
  INFO(job.log());
  CHECK(code == 75);
  CHECK(job.log().find("the system refuses") != std::string::npos);
}

TEST_CASE("dex prepare killed at random moments leaves no data set or a whole one", "[faults]") {
  const TrainingJob job;
  std::mt19937 random(31);
  const std::string manifest = read_file(job.dir / "data/MANIFEST.json");
  for (int i = 0; i < test::times(6, 100); ++i) {
    std::filesystem::remove_all(job.dir / "data");
    {
      test::Process run(job.prepare(), job.dir / "log-0");
      std::this_thread::sleep_for(std::chrono::duration<double>(draw(random, 0, 0.5)));
      run.send(SIGKILL);
      run.wait();
    }
    if (!std::filesystem::exists(job.dir / "data"))
      REQUIRE(test::Process(job.prepare(), job.dir / "log-0").wait() == 0);
    REQUIRE(read_file(job.dir / "data/MANIFEST.json") == manifest);
    REQUIRE_FALSE(std::filesystem::exists(job.dir / "data.tmp"));
  }
}
