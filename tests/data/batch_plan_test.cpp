#include "data/batch_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "common/error.h"

using namespace dex;

namespace {

std::vector<std::uint64_t> epoch_of(std::uint64_t seed, std::uint64_t epoch, std::uint64_t batch,
                                    std::uint64_t count) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t step = 0; step < steps_per_epoch(batch, count); ++step) {
    const auto indices = batch_indices(seed, epoch, step, batch, count);
    CHECK((indices.size() == batch || step + 1 == steps_per_epoch(batch, count)));
    all.insert(all.end(), indices.begin(), indices.end());
  }
  return all;
}

}  // namespace

TEST_CASE("an epoch takes every sample exactly once") {
  for (std::uint64_t count : {1, 2, 3, 4, 5, 15, 16, 17, 100, 1000, 17671})
    for (std::uint64_t batch : {1, 4, 16, 100}) {
      auto all = epoch_of(3, 1, batch, count);
      std::sort(all.begin(), all.end());
      std::vector<std::uint64_t> wanted(count);
      std::iota(wanted.begin(), wanted.end(), 0);
      REQUIRE(all == wanted);
    }
}

TEST_CASE("the order depends on seed and epoch, not on the batch size or on what was asked before") {
  CHECK(epoch_of(1, 0, 16, 1000) == epoch_of(1, 0, 7, 1000));
  CHECK(epoch_of(1, 0, 16, 1000) != epoch_of(1, 1, 16, 1000));
  CHECK(epoch_of(1, 0, 16, 1000) != epoch_of(2, 0, 16, 1000));
  const auto late = batch_indices(5, 2, 40, 16, 1000);
  batch_indices(5, 2, 3, 16, 1000);
  CHECK(batch_indices(5, 2, 40, 16, 1000) == late);
  CHECK_THROWS_AS(batch_indices(5, 2, 63, 16, 1000), Error);
  CHECK(steps_per_epoch(16, 1000) == 63);
  CHECK(steps_per_epoch(16, 0) == 0);
}

TEST_CASE("places and samples are unrelated") {
  // Spearman's correlation of place and sample over an epoch: 3 / sqrt(n) is three standard deviations.
  const std::uint64_t n = 5000;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto order = epoch_of(seed, 0, 16, n);
    double distance = 0;
    for (std::uint64_t i = 0; i < n; ++i)
      distance += std::pow(static_cast<double>(order[i]) - static_cast<double>(i), 2);
    const double correlation = 1 - 6 * distance / (static_cast<double>(n) * (static_cast<double>(n) * n - 1));
    CHECK(std::abs(correlation) < 3.5 / std::sqrt(n));
  }
}
