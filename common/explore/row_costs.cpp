#include "common/explore/row_costs.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace dex {

RowCosts::RowCosts(std::vector<Point> points) : points_(std::move(points)) {
  require(points_.size() >= 2 && points_.front().rows == 1, ExitCode::usage,
          "{} costs of rounds, the first of {} rows, wanted 2 or more from 1 row on",
          points_.size(), points_.empty() ? 0 : points_.front().rows);
  for (std::size_t i = 0; i < points_.size(); ++i) {
    require(points_[i].seconds > 0, ExitCode::usage, "a round of {} rows costs {} s, wanted more",
            points_[i].rows, points_[i].seconds);
    require(i == 0 || points_[i].rows > points_[i - 1].rows, ExitCode::usage,
            "the costs of {} rows come after those of {}, wanted rising numbers", points_[i].rows,
            points_[i - 1].rows);
  }
}

double RowCosts::seconds(int rows) const {
  rows = std::max(rows, 1);
  std::size_t i = 1;
  while (i + 1 < points_.size() && points_[i].rows < rows) ++i;
  const Point &a = points_[i - 1], &b = points_[i];
  return a.seconds + (b.seconds - a.seconds) * (rows - a.rows) / (b.rows - a.rows);
}

}  // namespace dex
