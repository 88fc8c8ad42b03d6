#include "common/explore/row_pool.h"

#include <algorithm>
#include <functional>

namespace dex {

std::int32_t RowPool::take() {
  if (free_.empty()) return end_++;
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const std::int32_t row = free_.back();
  free_.pop_back();
  return row;
}

std::vector<std::int32_t> RowPool::take(int count) {
  std::vector<std::int32_t> rows;
  for (int i = 0; i < count; ++i) rows.push_back(take());
  return rows;
}

void RowPool::give_back(std::int32_t row) {
  free_.push_back(row);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

void RowPool::give_back(std::span<const std::int32_t> rows) {
  for (const std::int32_t row : rows) give_back(row);
}

}  // namespace dex
