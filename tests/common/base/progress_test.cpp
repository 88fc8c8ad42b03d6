#include "common/base/progress.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <regex>

#include "common/base/file.h"
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

namespace {

std::string at_time_zero(const std::string& line) {  // a busy machine's clock has gone on
  return std::regex_replace(line, std::regex("[0-9]:[0-9][0-9]"), "0:00");
}

}  // namespace

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
  CHECK(at_time_zero(known) ==
        "reading [########################] 100% 4/4 records  0:00 elapsed  note 4\n");
  const std::string half = written_by([] {
    dex::Progress progress("reading", 4, "records");
    progress.update(2);
  });
  CHECK(at_time_zero(half) ==
        "reading [############............]  50% 2/4 records  0:00 elapsed, 0:00 left\n");
  const std::string unknown = written_by([] { dex::Progress("reading", 0, "records").update(3); });
  CHECK(at_time_zero(unknown) == "reading 3 records  0:00 elapsed\n");
  CHECK(written_by([] { dex::Progress progress("reading", 4, "records"); }).empty());
  close(saved);
}

TEST_CASE("on a terminal a line is redrawn in place and never longer than a row") {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) {  // a bare tree without /dev/pts
    std::cout << "SKIPPED: this machine gives no terminal: " << std::strerror(errno) << "\n";
    return;
  }
  REQUIRE((grantpt(terminal) == 0 && unlockpt(terminal) == 0));
  const winsize size{.ws_row = 24, .ws_col = 70, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(ioctl(terminal, TIOCSWINSZ, &size) == 0);
  const int saved = dup(STDERR_FILENO);
  REQUIRE(freopen(ptsname(terminal), "w", stderr));
  {
    dex::Progress progress("training", 4, "steps");
    progress.update(2, "loss @10 3.250 @20 2.500  agree 25.0% 40.0%  400 tok/s");
  }
  fflush(stderr);
  std::string drawn(4096, '\0');
  drawn.resize(std::max<ssize_t>(0, read(terminal, drawn.data(), drawn.size())));
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(terminal);
  // 69 columns
  CHECK(at_time_zero(drawn) ==
        "\r\033[Ktraining [####....]  50% 2/4 steps  0:00 elapsed, 0:00 left  loss @10\r\n");
}
