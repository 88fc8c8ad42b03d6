#include "common/explore/row_layout.h"

namespace dex {

void RowLayout::add(std::int32_t position, std::int32_t context_rows,
                    std::span<const std::int32_t> path) {
  positions.push_back(position);
  cache_rows.push_back(path.back());
  context_size.push_back(context_rows);
  ancestors.insert(ancestors.end(), path.begin(), path.end());
  ancestors_begin.push_back(std::int32_t(ancestors.size()));
}

RowLayout RowLayout::contiguous(int first, int count, std::span<const std::int32_t> context) {
  RowLayout layout;
  layout.context = context;
  for (int position = first; position < first + count; ++position)
    layout.add(position, position, context.subspan(position, 1));
  return layout;
}

RowLayout RowLayout::side_by_side(int count, std::span<const std::int32_t> context) {
  RowLayout layout;
  layout.context = context;
  const auto size = std::int32_t(context.size());
  for (std::int32_t own = size; own < size + count; ++own) layout.add(size, size, {&own, 1});
  return layout;
}

}  // namespace dex
