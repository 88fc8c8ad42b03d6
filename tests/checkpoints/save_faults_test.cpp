// Every file operation of a save fails once, and the disk fills up at many places.
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoints/adapter_file.h"
#include "tests/checkpoints/saves.h"
#include "tests/support/adapter_tensors.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"
#include "tests/support/file_faults.h"
#include "tests/support/scale.h"
#include "tests/support/temp_dir.h"

using namespace dex;
namespace fs = std::filesystem;
using Names = std::set<std::string>;

namespace {

// Lets the k-th operation under `root` fail, k = 1, 2, ... until none does; returns how many
// failed. `act` must then end in Error(io) that names a path under root and the reason; `check`
// looks at what is left.
int fail_each(const fs::path& root, int error, const std::function<void()>& prepare,
              const std::function<void()>& act, const std::function<void()>& check) {
  for (int k = 1;; ++k) {
    prepare();
    test::fail_file_call(root, k, error);
    const auto thrown = test::error_of(act);
    const test::FileFault fault = test::stop_failing();
    if (!fault.failed) {
      REQUIRE_FALSE(thrown);
      return k - 1;
    }
    INFO("operation " << k << ": " << fault.call);
    REQUIRE(thrown);
    INFO(thrown->what());
    REQUIRE(thrown->code() == ExitCode::io);
    REQUIRE(std::string(thrown->what()).find(root.string()) != std::string::npos);
    REQUIRE(std::string(thrown->what()).find(std::strerror(error)) != std::string::npos);
    check();
  }
}

}  // namespace

TEST_CASE("whatever operation of a save fails, an older checkpoint loads and no temporary is left",
          "[faults]") {
  test::skip_syncs();
  const test::TempDir dir(test::memory_directory());
  const fs::path root = dir / "c";
  for (const int error : {EIO, ENOSPC, EDQUOT, EROFS}) {
    INFO(std::strerror(error));
    const int failed = fail_each(
        root, error,
        [&] {
          fs::remove_all(root);
          test::save_step(root, 1, 2);
          test::save_step(root, 2, 2);
        },
        [&] { test::save_step(root, 3, 2); },
        [&] {
          const Names left = test::names_in(root);
          REQUIRE((left == Names{"step-1", "step-2"} ||
                   left == Names{"step-1", "step-2", "step-3"} ||
                   left == Names{"step-2", "step-3"}));
          const CheckpointSearch search = newest_checkpoint(root);
          REQUIRE(search.passed_over.empty());
          REQUIRE(search.step == (left.contains("step-3") ? 3 : 2));
          REQUIRE(read_file(search.dir / "weights") == test::weights_of(*search.step));
          test::save_step(root, 3, 2);
          REQUIRE(test::names_in(root) == Names{"step-2", "step-3"});
        });
    // opens, writes, syncs and renames of three files, their directory, its name and what is pruned
    CHECK(failed > 30);
  }
}

TEST_CASE("a first save that fails leaves no checkpoint and the next one succeeds", "[faults]") {
  test::skip_syncs();
  const test::TempDir dir(test::memory_directory());
  const int failed = fail_each(
      dir.path(), EIO, [&] { fs::remove_all(dir / "out"); },
      [&] { test::save_step(dir / "out/c", 1); },
      [&] {
        const CheckpointSearch search = newest_checkpoint(dir / "out/c");
        REQUIRE(search.passed_over.empty());
        test::save_step(dir / "out/c", 1);
        REQUIRE(newest_checkpoint(dir / "out/c").step == 1);
      });
  CHECK(failed > 30);
}

TEST_CASE(
    "whatever operation of writing adapters fails, old or new ones load and no temporary is left",
    "[faults]") {
  test::skip_syncs();
  const test::TempDir dir(test::memory_directory());
  const test::AdapterTensors tensors;
  for (const int error : {EIO, ENOSPC}) {
    const int failed = fail_each(
        dir / "a", error, [&] { fs::remove_all(dir / "a"), make_directory(dir / "a"); },
        [&] { write_adapter_file(dir / "a", tensors.config, tensors.stored); },
        [&] {
          for (const std::string& name : test::names_in(dir / "a"))
            REQUIRE((name == "adapter_config.json" || name == "adapter_model.safetensors"));
          write_adapter_file(dir / "a", tensors.config, tensors.stored);
          REQUIRE(read_adapter_file(dir / "a").weights.tensors().size() == 12);
        });
    CHECK(failed >= 10);
  }
}

TEST_CASE("a disk that fills up at any of 200 places leaves the older checkpoint", "[faults]") {
  test::skip_syncs();
  const test::TempDir dir(test::memory_directory());
  test::save_step(dir / "c", 1);
  for (int i = 0; i < 200; ++i) {
    const auto limit = static_cast<rlim_t>(i) * 20000 / 200;
    const int code = test::code_in_child([&] {
      test::limit_file_size(limit);
      const auto error = test::error_of([&] { test::save_step(dir / "c", 2); });
      const bool named =
          error && std::string(error->what()).find(dir.path().string()) != std::string::npos &&
          std::string(error->what()).find(std::strerror(EFBIG)) != std::string::npos;
      return named ? int(error->code()) : 1;
    });
    INFO(limit);
    REQUIRE(code == 74);
    REQUIRE(test::names_in(dir / "c") == Names{"step-1"});
    REQUIRE(newest_checkpoint(dir / "c").step == 1);
  }
}

TEST_CASE("pruning alone removes what a killed run left and keeps the newest", "[faults]") {
  const test::TempDir dir(test::memory_directory());
  for (std::int64_t step : {1, 2, 3, 9}) test::save_step(dir / "c", step, 9);
  fs::remove(dir / "c/step-9/weights");
  fs::create_directories(dir / "c/.step-4.tmp/half");
  fs::create_directories(dir / "c/.step-0.doomed");
  prune_checkpoints(dir / "c", 3, 2);
  CHECK(test::names_in(dir / "c") == Names{"step-2", "step-3", "step-9"});
}

TEST_CASE("adapters that a killed process was writing leave nothing beside the next ones") {
  const test::TempDir dir(test::memory_directory());
  const test::AdapterTensors tensors;
  dir.write("a/adapter_model.safetensors.tmp-77", "half");
  dir.write("a/adapter_config.json.tmp-77", "{");
  write_adapter_file(dir / "a", tensors.config, tensors.stored);
  CHECK(test::names_in(dir / "a") == Names{"adapter_config.json", "adapter_model.safetensors"});
}
