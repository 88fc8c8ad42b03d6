#include "data/batch_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "common/base/error.h"

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

TEST_CASE(
    "the order depends on seed and epoch, not on the batch size or on what was asked before") {
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
  // Spearman's correlation of place and sample over an epoch: 3 / sqrt(n) is three standard
  // deviations.
  const std::uint64_t n = 5000;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto order = epoch_of(seed, 0, 16, n);
    double distance = 0;
    for (std::uint64_t i = 0; i < n; ++i) distance += std::pow(double(order[i]) - double(i), 2);
    const double correlation = 1 - 6 * distance / (double(n) * (double(n) * n - 1));
    CHECK(std::abs(correlation) < 3.5 / std::sqrt(n));
  }
}

TEST_CASE("things are assigned each once, into parts of near-equal cost and number") {
  const std::vector<double> cost{7, 1, 1, 1, 1, 1, 1, 1};
  CHECK(split_evenly(cost, 2, 7) ==
        std::vector<std::vector<std::size_t>>{{0}, {1, 2, 3, 4, 5, 6, 7}});
  CHECK(split_evenly(cost, 2, 4) ==
        std::vector<std::vector<std::size_t>>{{0, 5, 6, 7}, {1, 2, 3, 4}});
  CHECK(split_evenly(cost, 1, 8) ==
        std::vector<std::vector<std::size_t>>{{0, 1, 2, 3, 4, 5, 6, 7}});
  CHECK(split_evenly(std::vector<double>{0, 0, 0}, 3, 1) ==
        std::vector<std::vector<std::size_t>>{{0}, {1}, {2}});
  CHECK(split_evenly(std::vector<double>{100, 0, 0}, 3, 3).size() == 3);
  std::mt19937_64 random(4);
  for (std::size_t count = 1; count <= 40; ++count)
    for (std::size_t most : {1, 2, 3, 4, 7})
      for (std::size_t parts = (count + most - 1) / most; parts <= count; ++parts) {
        std::vector<double> costs;
        for (std::size_t i = 0; i < count; ++i) costs.push_back(double(random() % 1000));
        std::vector<std::size_t> all;
        const auto groups = split_evenly(costs, parts, most);
        REQUIRE(groups.size() == parts);
        for (const auto& part : groups) {
          REQUIRE((!part.empty() && part.size() <= most));
          all.insert(all.end(), part.begin(), part.end());
        }
        std::sort(all.begin(), all.end());
        std::vector<std::size_t> wanted(count);
        std::iota(wanted.begin(), wanted.end(), std::size_t{0});
        REQUIRE(all == wanted);
      }
  CHECK_THROWS_AS(split_evenly(cost, 9, 1), Error);
  CHECK_THROWS_AS(split_evenly(cost, 2, 3), Error);
}

TEST_CASE("neighbouring parts weigh the same, however many replicas share them") {
  std::mt19937_64 random(5);
  double before = 0, after = 0;
  for (int step = 0; step < 200; ++step) {
    std::vector<double> costs;
    for (int i = 0; i < 16; ++i) costs.push_back(30 + double(random() % 1000));
    const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / 4;
    const auto groups = split_evenly(costs, 8, 2);
    double most_before = 0, most_after = 0;
    for (std::size_t replica = 0; replica < 4; ++replica) {
      double here = 0;
      for (std::size_t part : {2 * replica, 2 * replica + 1})
        for (std::size_t i : groups[part]) here += costs[i];
      most_after = std::max(most_after, here / mean);
      most_before = std::max(
          most_before, std::accumulate(&costs[4 * replica], &costs[4 * replica] + 4, 0.0) / mean);
    }
    before += most_before / 200;
    after += most_after / 200;
  }
  CHECK(after < 1.1);
  // of four in the order they come, the slowest has 1.29 of the mean
  CHECK(after - 1 < 0.4 * (before - 1));
}
