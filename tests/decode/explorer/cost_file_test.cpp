#include "decode/explorer/cost_file.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <optional>

#include "common/base/file.h"
#include "tests/support/temp_dir.h"

namespace dex {
namespace {

// Counts how often it is asked to measure.
struct Meter {
  int calls = 0;
  double seconds;
  CostFile::Measure measure() {
    return [this] {
      ++calls;
      return std::make_shared<const RowCosts>(
          std::vector<RowCosts::Point>{{1, seconds}, {4, 2 * seconds}});
    };
  }
};

// The user's cache folder is `dir` while this lives.
struct CacheFolder {
  explicit CacheFolder(const std::filesystem::path& dir) {
    if (const char* old = std::getenv("XDG_CACHE_HOME")) before = old;
    setenv("XDG_CACHE_HOME", dir.c_str(), 1);
  }
  ~CacheFolder() {
    before ? setenv("XDG_CACHE_HOME", before->c_str(), 1) : unsetenv("XDG_CACHE_HOME");
  }
  std::optional<std::string> before;
};

TEST_CASE("costs are measured once by name and kept in a file") {
  const test::TempDir dir;
  const auto path = dir / "costs.json";
  Meter first{.seconds = 0.25}, second{.seconds = 0.5};
  CHECK(CostFile(path).of("a", first.measure())->seconds(1) == 0.25);
  CHECK(CostFile(path).of("b", second.measure())->seconds(1) == 0.5);
  const auto again = CostFile(path).of("a", second.measure());
  CHECK(first.calls == 1);
  CHECK(second.calls == 1);
  CHECK(again->seconds(1) == 0.25);
  CHECK(again->seconds(4) == 0.5);
  CHECK(again->seconds(2) == Approx(0.25 + 0.25 / 3));
}

TEST_CASE("a file that a user writes fixes what rounds cost") {
  const test::TempDir dir;
  write_file(dir / "costs.json", R"({"seconds": {"a": [[1, 0.01], [8, 0.015]]}})");
  Meter meter{.seconds = 1};
  CHECK(CostFile(dir / "costs.json").of("a", meter.measure())->seconds(8) == 0.015);
  CHECK(meter.calls == 0);
}

TEST_CASE("a damaged file of costs is refused by its name, the user's own is measured anew") {
  const test::TempDir dir;
  const CacheFolder folder(dir.path());
  const auto own = dir / "dex" / "costs.json";
  make_directory(own.parent_path());
  for (const char* damaged :
       {"", "{", "[]", R"({"seconds": 3})", R"({"seconds": []})",
        R"({"seconds": [[[1, 0.1], [2, 0.2]]]})", R"({"seconds": {"a": [[1, 0.1]]}})",
        R"({"seconds": {"a": [[2, 0.1], [3, 0.2]]}})", R"({"seconds": {"a": [[1, -1], [2, 1]]}})",
        R"({"seconds": {"a": [[1, "x"], [2, 1]]}})", R"({"other": {}})"}) {
    CAPTURE(damaged);
    write_file(dir / "named.json", damaged);
    Meter meter{.seconds = 0.5};
    CHECK_THROWS_WITH(CostFile(dir / "named.json").of("a", meter.measure()),
                      Catch::Contains("named.json"));
    CHECK(meter.calls == 0);
    CHECK(read_file(dir / "named.json") == damaged);

    write_file(own, damaged);
    CHECK(CostFile().of("a", meter.measure())->seconds(1) == 0.5);
    CHECK(CostFile().of("a", meter.measure())->seconds(1) == 0.5);
    CHECK(meter.calls == 1);  // the second time it was kept
  }
}

TEST_CASE("without a folder of the user's costs are measured each time") {
  const test::TempDir dir;
  write_file(dir / "file", "");  // no folder can be made below it, whoever runs this
  const CacheFolder folder(dir / "file");
  Meter meter{.seconds = 0.5};
  for (int i = 0; i < 2; ++i) CHECK(CostFile().of("a", meter.measure())->seconds(1) == 0.5);
  CHECK(meter.calls == 2);
  Meter named{.seconds = 0.5};
  CHECK_THROWS_WITH(CostFile(dir / "file" / "costs.json").of("a", named.measure()),
                    Catch::Contains("file"));
}

}  // namespace
}  // namespace dex
