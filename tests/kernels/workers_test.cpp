#include "kernels/workers.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <vector>

namespace dex {
namespace {

TEST_CASE("workers run every part exactly once before they return") {
  for (const int threads : {1, 2, 5}) {
    Workers workers(threads);
    CHECK(workers.threads() == threads);
    for (int round = 0; round < 2000; ++round) {
      const int parts = round % 23;
      std::vector<std::atomic<int>> runs(parts);
      workers.run(parts, [&](int i) { ++runs[i]; });
      for (const auto& count : runs) REQUIRE(count == 1);
    }
  }
}

}  // namespace
}  // namespace dex
