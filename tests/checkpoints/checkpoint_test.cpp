#include "checkpoints/checkpoint.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <thread>

#include "common/file.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

using namespace dex;
namespace fs = std::filesystem;

namespace {

std::string content(std::int64_t step) { return std::string(20000, static_cast<char>('a' + step % 26)); }

void save(const fs::path& root, std::int64_t step, int keep = 3) {
  save_checkpoint(root, step, keep, [&](const fs::path& dir) {
    write_file(dir / "weights", content(step));
    write_file(dir / "state.json", "{\"step\": " + std::to_string(step) + "}");
  });
}

std::set<std::string> names_in(const fs::path& root) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) names.insert(entry.path().filename().string());
  return names;
}

// Runs `act` in a child and says how it ended.
int in_child(const std::function<void()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      act();
    } catch (...) {
      _exit(9);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("the newest checkpoint is found and older ones are pruned") {
  const test::TempDir dir;
  CHECK_FALSE(newest_checkpoint(dir / "none").step);
  for (std::int64_t step : {5, 10, 15, 100}) save(dir / "c", step, 2);
  const auto search = newest_checkpoint(dir / "c");
  CHECK(search.step == 100);
  CHECK(search.passed_over.empty());
  CHECK(read_file(search.dir / "weights") == content(100));
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-15", "step-100"});
}

TEST_CASE("a spared checkpoint stays beside the newest ones") {
  const test::TempDir dir;
  for (std::int64_t step : {5, 10, 15, 20, 25})
    save_checkpoint(dir / "c", step, 2, [&](const fs::path& made) { write_file(made / "weights", content(step)); }, 10);
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-10", "step-20", "step-25"});
  REQUIRE(checkpoints_in(dir / "c").size() == 3);
  CHECK(checkpoints_in(dir / "c").front().first == 10);
  save(dir / "c", 30, 2);  // another is spared, or none
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-25", "step-30"});
}

TEST_CASE("a damaged checkpoint is passed over with a reason") {
  const test::TempDir dir;
  save(dir / "c", 1);
  save(dir / "c", 2);
  const fs::path newest = dir / "c/step-2";
  std::string word;
  SECTION("a file cut") {
    write_file(newest / "weights", content(2).substr(1));
    word = "19999 bytes";
  }
  SECTION("a byte altered") {
    auto altered = content(2);
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

  save(dir / "c", 2);  // the run gets there again
  CHECK(newest_checkpoint(dir / "c").step == 2);
}

TEST_CASE("a damaged newer checkpoint does not push out whole older ones") {
  const test::TempDir dir;
  save(dir / "c", 9, 1);
  fs::remove(dir / "c/step-9/weights");
  save(dir / "c", 4, 1);
  CHECK(newest_checkpoint(dir / "c").step == 4);
}

TEST_CASE("saving a step that is there whole changes nothing") {
  const test::TempDir dir;
  save(dir / "c", 3);
  const auto before = fs::last_write_time(dir / "c/step-3");
  save(dir / "c", 3);
  CHECK(fs::last_write_time(dir / "c/step-3") == before);
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-3"});
}

TEST_CASE("a save that fails leaves the older checkpoint and no temporary") {
  const test::TempDir dir;
  save(dir / "c", 1);
  CHECK_THROWS(save_checkpoint(dir / "c", 2, 3, [&](const fs::path& temporary) {
    write_file(temporary / "weights", content(2));
    throw std::runtime_error("no more");
  }));
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-1"});
  CHECK(newest_checkpoint(dir / "c").step == 1);
}

TEST_CASE("a disk that fills up leaves the older checkpoint, whatever the byte") {
  const test::TempDir dir;
  save(dir / "c", 1);
  for (rlim_t limit : {0, 1, 100, 4096, 19999}) {
    const int status = in_child([&] {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit cap{limit, limit};
      setrlimit(RLIMIT_FSIZE, &cap);
      try {
        save(dir / "c", 2);
      } catch (const Error& error) {
        _exit(error.code() == ExitCode::io ? 74 : 1);
      }
    });
    CHECK(WEXITSTATUS(status) == 74);
    CHECK(names_in(dir / "c") == std::set<std::string>{"step-1"});
    CHECK(newest_checkpoint(dir / "c").step == 1);
  }
}

TEST_CASE("a kill between write and rename leaves the older checkpoint") {
  const test::TempDir dir;
  save(dir / "c", 1);
  const int status = in_child([&] {
    save_checkpoint(dir / "c", 2, 3, [&](const fs::path& temporary) {
      write_file(temporary / "weights", content(2));
      raise(SIGKILL);
    });
  });
  CHECK(WTERMSIG(status) == SIGKILL);
  const auto search = newest_checkpoint(dir / "c");
  CHECK(search.step == 1);
  CHECK(search.passed_over.empty());
  save(dir / "c", 2);
  CHECK(names_in(dir / "c") == std::set<std::string>{"step-1", "step-2"});
}

TEST_CASE("kills at random moments never lose a saved checkpoint and never leave a torn one") {
  const test::TempDir dir;
  std::mt19937 random(7);
  std::int64_t saved = 0;
  for (int round = 0; round < 60; ++round) {
    int progress[2];
    REQUIRE(pipe(progress) == 0);
    const pid_t child = fork();
    if (child == 0) {
      for (std::int64_t step = saved + 1;; ++step) {
        save(dir / "c", step, 2);
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
    if (found > 0) REQUIRE(read_file(search.dir / "weights") == content(found));
    saved = found;
  }
}

TEST_CASE("keeping no checkpoint is refused") {
  const test::TempDir dir;
  test::check_refused(ExitCode::usage, {"0"}, [&] { save(dir / "c", 1, 0); });
}
