#include "common/base/allowed_cores.h"

#include <sched.h>

#include <catch2/catch.hpp>

#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

using namespace dex;
namespace fs = std::filesystem;

namespace {

// A tree of control groups, and a process in one of them.
struct Groups {
  test::TempDir dir;

  void file(const std::string& path, const std::string& text) const {
    fs::create_directories((dir / path).parent_path());
    dir.write(path, text);
  }
  std::optional<double> quota(const std::string& membership) const {
    dir.write("membership", membership);
    return cpu_quota(dir / "membership", dir.path());
  }
};

}  // namespace

TEST_CASE("the quota of version 2 is the least of the process's group and those around it") {
  const Groups groups;
  groups.file("a/cpu.max", "max 100000\n");
  CHECK_FALSE(groups.quota("0::/a\n"));
  groups.file("a/b/cpu.max", "300000 100000\n");
  CHECK(groups.quota("0::/a/b\n") == 3.0);
  groups.file("a/b/c/cpu.max", "50000 20000\n");
  groups.file("a/other/cpu.max", "1000 100000\n");  // of others
  CHECK(groups.quota("0::/a/b/c\n") == 2.5);
  CHECK(groups.quota("0::/a/b/c/not/seen\n") == 2.5);
  CHECK_FALSE(groups.quota("0::/a\n"));
  groups.file("cpu.max", "150000 100000\n");  // a container sees its own group as the root
  CHECK(groups.quota("0::/\n") == 1.5);
  CHECK(groups.quota("0::/a/b/c\n") == 1.5);
  CHECK(groups.quota("0::/../../elsewhere\n") == 1.5);
}

TEST_CASE("the quota of version 1 is found wherever its controller is mounted") {
  for (const char* mount : {"cpu", "cpu,cpuacct"}) {
    const Groups groups;
    const std::string group = std::string(mount) + "/docker/1f";
    const std::string line = std::string("4:memory:/docker/1f\n3:") +
                             (mount == std::string("cpu") ? "cpu" : "cpu,cpuacct") +
                             ":/docker/1f\n";
    CHECK_FALSE(groups.quota(line));
    groups.file(std::string(mount) + "/cpu.cfs_quota_us", "-1\n");
    groups.file(std::string(mount) + "/cpu.cfs_period_us", "100000\n");
    CHECK_FALSE(groups.quota(line));
    groups.file(group + "/cpu.cfs_quota_us", "250000\n");
    groups.file(group + "/cpu.cfs_period_us", "100000\n");
    CHECK(groups.quota(line) == 2.5);
    CHECK_FALSE(groups.quota("3:cpuset:/docker/1f\n2:cpuacct:/docker/1f\n"));
  }
}

TEST_CASE("with both versions the lesser quota counts") {
  const Groups groups;
  groups.file("unified/cpu.max", "400000 100000\n");
  groups.file("cpu/cpu.cfs_quota_us", "200000\n");
  groups.file("cpu/cpu.cfs_period_us", "100000\n");
  CHECK(groups.quota("1:cpu:/\n0::/\n") == 2.0);
}

TEST_CASE("control groups that cannot be understood limit nothing") {
  const Groups groups;
  CHECK_FALSE(cpu_quota(groups.dir / "absent", groups.dir.path()));
  for (const char* text : {"", "max", "100000", "100000 0", "-1 100000", "x y", "0 100000"}) {
    INFO(text);
    groups.file("cpu.max", text);
    CHECK_FALSE(groups.quota("0::/\n"));
  }
  groups.file("cpu.max", "100000 100000");
  CHECK_FALSE(groups.quota("no such line\n1\n2:\n\n"));
}

TEST_CASE("threads are as many as the allowed cores, the quota rounded up, one at least") {
  CHECK(allowed_cores(8, std::nullopt) == 8);
  CHECK(allowed_cores(8, 3.0) == 3);
  CHECK(allowed_cores(8, 1.5) == 2);
  CHECK(allowed_cores(8, 0.1) == 1);
  CHECK(allowed_cores(2, 64.0) == 2);
  CHECK(allowed_cores(0, std::nullopt) == 1);
}

TEST_CASE("a process that is bound to a core counts one") {
  int bound = -1;
  for (int core = 0; bound < 0 && core < 4096; ++core)
    if (may_run_on(core)) bound = core;
  REQUIRE(bound >= 0);
  CHECK(test::code_in_child([&] {
          cpu_set_t set;
          CPU_ZERO(&set);
          CPU_SET(std::size_t(bound), &set);
          if (sched_setaffinity(0, sizeof set, &set) != 0) return 2;
          return may_run_on(bound) && !may_run_on(bound + 1) ? 10 + allowed_cores() : 3;
        }) == 11);
  CHECK_FALSE(may_run_on(-1));
  CHECK_FALSE(may_run_on(1 << 30));
}
