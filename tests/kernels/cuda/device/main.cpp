// The kernels' tests on a device; skipped where there is none.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>

namespace dex::test {
int device_count();
}

int main(int argc, char** argv) {
  bool lists = false;
  for (int i = 1; i < argc; ++i) lists = lists || std::strncmp(argv[i], "--list", 6) == 0;
  if (!lists && dex::test::device_count() == 0) {
    std::puts("SKIPPED: no GPU");
    return 0;
  }
  return Catch::Session().run(argc, argv);
}
