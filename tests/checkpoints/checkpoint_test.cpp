#include "checkpoints/checkpoint.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <thread>

#include "common/base/file.h"
#include "tests/checkpoints/saves.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"
#include "tests/support/scale.h"
#include "tests/support/temp_dir.h"

using namespace dex;
namespace fs = std::filesystem;

using test::names_in, test::save_step;

TEST_CASE("the newest checkpoint is found and older ones are pruned") {
  const test::TempDir dir;
  CHECK_FALSE(newest_checkpoint(dir / "none").step);
  for (std::int64_t step : {5, 10, 15, 100}) save_step(dir / "c", step, 2);
  const auto search = newest_checkpoint(dir / "c");
  CHECK(search.step == 100);
  CHECK(search.passed_over.empty());
  CHECK(read_file(search.dir / "weights") == test::weights_of(100));
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-15", "step-100"});
}

TEST_CASE("a spared checkpoint stays beside the newest ones") {
  const test::TempDir dir;
  for (std::int64_t step : {5, 10, 15, 20, 25})
    save_checkpoint(
        dir / "c", step, 2,
        [&](const fs::path& made) { write_file(made / "weights", test::weights_of(step)); }, 10);
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-10", "step-20", "step-25"});
  REQUIRE(checkpoints_in(dir / "c").size() == 3);
  CHECK(checkpoints_in(dir / "c").front().first == 10);
  save_step(dir / "c", 30, 2);  // another is spared, or none
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-25", "step-30"});
}

TEST_CASE("a damaged checkpoint is passed over with a reason") {
  const test::TempDir dir;
  save_step(dir / "c", 1);
  save_step(dir / "c", 2);
  const fs::path newest = dir / "c/step-2";
  std::string word;
  SECTION("a file cut") {
    write_file(newest / "weights", test::weights_of(2).substr(1));
    word = "20000 bytes";
  }
  SECTION("a byte altered") {
    auto altered = test::weights_of(2);
    altered[77] ^= 1;
    write_file(newest / "weights", altered);
    word = "digest";
  }
  SECTION("a file gone") {
    fs::remove(newest / "state.json");
    word = "state.json";
  }
  SECTION("a file more") {
    write_file(newest / "extra", "");
    word = "extra";
  }
  SECTION("no manifest") {
    fs::remove(newest / "MANIFEST.json");
    word = "MANIFEST.json";
  }
  SECTION("a manifest cut") {
    write_file(newest / "MANIFEST.json", "{\"format\"");
    word = "MANIFEST.json";
  }
  SECTION("the manifest of another step") {
    write_file(newest / "MANIFEST.json", read_file(dir / "c/step-1/MANIFEST.json"));
    word = "step 1";
  }
  const auto search = newest_checkpoint(dir / "c");
  CHECK(search.step == 1);
  REQUIRE(search.passed_over.size() == 1);
  INFO(search.passed_over[0]);
  CHECK(search.passed_over[0].find(word) != std::string::npos);

  save_step(dir / "c", 2);  // the run gets there again
  CHECK(newest_checkpoint(dir / "c").step == 2);
}

TEST_CASE("a damaged newer checkpoint does not push out whole older ones") {
  const test::TempDir dir;
  save_step(dir / "c", 9, 1);
  fs::remove(dir / "c/step-9/weights");
  save_step(dir / "c", 4, 1);
  CHECK(newest_checkpoint(dir / "c").step == 4);
}

TEST_CASE("saving a step that is there whole changes nothing") {
  const test::TempDir dir;
  save_step(dir / "c", 3);
  const auto before = fs::last_write_time(dir / "c/step-3");
  save_step(dir / "c", 3);
  CHECK(fs::last_write_time(dir / "c/step-3") == before);
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-3"});
}

TEST_CASE("a save that fails leaves the older checkpoint and no temporary") {
  const test::TempDir dir;
  save_step(dir / "c", 1);
  CHECK_THROWS(save_checkpoint(dir / "c", 2, 3, [&](const fs::path& temporary) {
    write_file(temporary / "weights", test::weights_of(2));
    throw std::runtime_error("no more");
  }));
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-1"});
  CHECK(newest_checkpoint(dir / "c").step == 1);
}

TEST_CASE("a kill between write and rename leaves the older checkpoint") {
  const test::TempDir dir;
  save_step(dir / "c", 1);
  const int code = test::code_in_child([&] {
    save_checkpoint(dir / "c", 2, 3, [&](const fs::path& temporary) {
      write_file(temporary / "weights", test::weights_of(2));
      raise(SIGKILL);
    });
    return 0;
  });
  CHECK(code == 1000 + SIGKILL);
  const auto search = newest_checkpoint(dir / "c");
  CHECK(search.step == 1);
  CHECK(search.passed_over.empty());
  save_step(dir / "c", 2);
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-1", "step-2"});
}

TEST_CASE("kills at random moments never lose a saved checkpoint and never leave a torn one",
          "[faults]") {
  const test::TempDir dir;
  std::mt19937 random(7);
  std::int64_t saved = 0;
  for (int round = 0; round < test::times(60, 1000); ++round) {
    int progress[2];
    REQUIRE(pipe(progress) == 0);
    const pid_t child = fork();
    if (child == 0) {
      for (std::int64_t step = saved + 1;; ++step) {
        save_step(dir / "c", step, 2);
        if (write(progress[1], &step, sizeof step) != sizeof step) _exit(9);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(progress[1]);
    std::int64_t step = 0;
    while (read(progress[0], &step, sizeof step) == sizeof step) saved = step;
    close(progress[0]);

    const auto search = newest_checkpoint(dir / "c");
    REQUIRE(search.passed_over.empty());
    const std::int64_t found = search.step.value_or(0);
    REQUIRE(found >= saved);
    REQUIRE(found <= saved + 1);  // killed after the rename, before it could say so
    if (found > 0) REQUIRE(read_file(search.dir / "weights") == test::weights_of(found));
    saved = found;
  }
}

TEST_CASE("keeping no checkpoint is refused") {
  const test::TempDir dir;
  test::check_refused(ExitCode::usage, {"0"}, [&] { save_step(dir / "c", 1, 0); });
}
