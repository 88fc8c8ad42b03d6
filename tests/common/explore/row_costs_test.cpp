#include "common/explore/row_costs.h"

#include <catch2/catch.hpp>

#include "common/base/error.h"

namespace dex {

TEST_CASE("costs between points lie on the line between them, and go on past the last") {
  const RowCosts costs({{1, 2.0}, {2, 3.0}, {6, 11.0}});
  CHECK(costs.seconds(0) == 2.0);  // as one
  CHECK(costs.seconds(1) == 2.0);
  CHECK(costs.seconds(2) == 3.0);
  CHECK(costs.seconds(4) == 7.0);
  CHECK(costs.seconds(6) == 11.0);
  CHECK(costs.seconds(8) == 15.0);
}

TEST_CASE("costs that cannot be are refused") {
  CHECK_THROWS_AS(RowCosts({}), Error);
  CHECK_THROWS_AS(RowCosts({{1, 1.0}}), Error);
  CHECK_THROWS_AS(RowCosts({{2, 1.0}, {3, 1.0}}), Error);
  CHECK_THROWS_AS(RowCosts({{1, 1.0}, {1, 2.0}}), Error);
  CHECK_THROWS_AS(RowCosts({{1, 0.0}, {2, 1.0}}), Error);
}

}  // namespace dex
