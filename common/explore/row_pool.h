// The rows of a KV cache that sequences share: who has which. Every explorer replays the same
// calls, so a row has the same number at every stage. Row numbers never show in a result.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace dex {

class RowPool {
 public:
  std::int32_t take();  // the lowest free row
  std::vector<std::int32_t> take(int count);
  void give_back(std::int32_t row);
  void give_back(std::span<const std::int32_t> rows);

  int taken() const { return end_ - int(free_.size()); }

 private:
  std::vector<std::int32_t> free_;  // below end_, a heap: the lowest on top
  std::int32_t end_ = 0;            // rows from here on were never taken
};

}  // namespace dex
