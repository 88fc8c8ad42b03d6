#include "common/progress.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/file.h"
#include "tests/support/temp_dir.h"

TEST_CASE("clock text rounds to seconds and shows hours only when there are some") {
  CHECK(dex::clock_text(0) == "0:00");
  CHECK(dex::clock_text(-3) == "0:00");
  CHECK(dex::clock_text(7.4) == "0:07");
  CHECK(dex::clock_text(59.4) == "0:59");
  CHECK(dex::clock_text(59.6) == "1:00");
  CHECK(dex::clock_text(750) == "12:30");
  CHECK(dex::clock_text(3599.6) == "1:00:00");
  CHECK(dex::clock_text(7500) == "2:05:00");
  CHECK(dex::clock_text(100 * 3600 + 61) == "100:01:01");
}

TEST_CASE("progress writes to stderr, once when the work is short and no terminal is there") {
  const dex::test::TempDir dir;
  const int saved = dup(STDERR_FILENO);
  const auto written_by = [&](auto work) {
    REQUIRE(freopen((dir / "stderr").c_str(), "w", stderr));
    work();
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    return dex::read_file(dir / "stderr");
  };
  const std::string known = written_by([] {
    dex::Progress progress("reading", 4, "records");
    for (int i = 1; i <= 4; ++i) progress.update(i, "note " + std::to_string(i));
  });
  CHECK(known == "reading [########################] 100% 4/4 records  0:00 elapsed  note 4\n");
  const std::string half = written_by([] {
    dex::Progress progress("reading", 4, "records");
    progress.update(2);
  });
  CHECK(half == "reading [############............]  50% 2/4 records  0:00 elapsed, 0:00 left\n");
  const std::string unknown = written_by([] { dex::Progress("reading", 0, "records").update(3); });
  CHECK(unknown == "reading 3 records  0:00 elapsed\n");
  CHECK(written_by([] { dex::Progress progress("reading", 4, "records"); }).empty());
  close(saved);
}
