#include "common/explore/row_pool.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

namespace dex {

TEST_CASE("the lowest free row is taken, whatever was given back before") {
  std::mt19937 draw(3);
  RowPool pool;
  std::set<std::int32_t> taken;
  for (int step = 0; step < 2000; ++step) {
    if (taken.empty() || draw() % 5 < 3) {
      std::int32_t lowest = 0;
      while (taken.count(lowest)) ++lowest;
      REQUIRE(pool.take() == lowest);
      taken.insert(lowest);
    } else {
      const auto at = std::next(taken.begin(), draw() % taken.size());
      pool.give_back(*at);
      taken.erase(at);
    }
    REQUIRE(pool.taken() == int(taken.size()));
  }
}

TEST_CASE("a fresh pool gives rows in order") {
  RowPool pool;
  CHECK(pool.take(3) == std::vector<std::int32_t>{0, 1, 2});
  CHECK(pool.take(0).empty());
  pool.give_back(std::vector<std::int32_t>{2, 0});
  CHECK(pool.take(3) == std::vector<std::int32_t>{0, 2, 3});
}

}  // namespace dex
