// The training loop's own files under failing operations, in this process.
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"
#include "tests/support/file_faults.h"
#include "tests/support/temp_dir.h"
#include "train/loop/stop_signal.h"
#include "train/reports/metrics_log.h"

using namespace dex;

TEST_CASE(
    "whatever operation of a metrics log fails, it names path and reason, and every whole line "
    "stays",
    "[faults]") {
  test::skip_syncs();
  const test::TempDir dir(test::memory_directory());
  const std::string old = "{\"step\":1}\n{\"step\":2}\n";
  for (const int error : {EIO, ENOSPC}) {
    int failed = 0;
    for (int k = 1;; ++k) {
      dir.write("m.jsonl", old);
      test::fail_file_call(dir.path(), k, error);
      const auto thrown = test::error_of([&] {
        MetricsLog log(dir / "m.jsonl", 2);
        log.write({{"step", 3}});
        log.write({{"step", 4}});
      });
      const test::FileFault fault = test::stop_failing();
      if (!fault.failed) {
        CHECK_FALSE(thrown);
        break;
      }
      ++failed;
      INFO(fault.call);
      REQUIRE(thrown);
      REQUIRE(thrown->code() == ExitCode::io);
      REQUIRE(std::string(thrown->what()).find(dir.path().string()) != std::string::npos);
      REQUIRE(std::string(thrown->what()).find(std::strerror(error)) != std::string::npos);
      const std::string left = read_file(dir / "m.jsonl");
      REQUIRE((left == old || left == old + "{\"step\":3}\n"));
      for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
        const std::string name = entry.path().filename().string();
        REQUIRE((name == "m.jsonl" || name == "tensorboard"));
      }
    }
    CHECK(failed >= 10);
  }
}

TEST_CASE(
    "a signal that was held back is known to the stop signal, and acts as before when it is let "
    "go") {
  CHECK(test::code_in_child([] {
          StopSignal::hold();
          raise(SIGTERM);
          const StopSignal stop;
          return stop.raised() ? 7 : 8;
        }) == 7);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1})
    CHECK(test::code_in_child([&] {
            signal(number, SIG_DFL);
            StopSignal::hold();
            raise(number);
            StopSignal::release();
            return 8;
          }) == 1000 + number);
  CHECK(test::code_in_child([] {
          const StopSignal stop;
          raise(SIGUSR1);
          raise(SIGTERM);  // the second one
          return 8;
        }) == 1000 + SIGTERM);
}
