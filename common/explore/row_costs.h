// What a round takes, by how many rows enter it.
#pragma once
#include <vector>

namespace dex {

class RowCosts {
 public:
  struct Point {
    int rows = 1;
    double seconds = 0;
  };

  // Rising in rows from 1 on, seconds above 0, at least two of them: Error(usage).
  explicit RowCosts(std::vector<Point> points);

  // On the line between two points; past the last one on the last line. No rows are as one: the
  // other explorers' rows take their time all the same.
  double seconds(int rows) const;
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
};

}  // namespace dex
