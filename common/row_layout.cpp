#include "common/row_layout.h"

namespace dex {

void RowLayout::add(std::int32_t position, std::int32_t context_rows, std::span<const std::int32_t> path) {
  positions.push_back(position);
  cache_rows.push_back(path.back());
  context_size.push_back(context_rows);
  branch.insert(branch.end(), path.begin(), path.end());
  branch_begin.push_back(static_cast<std::int32_t>(branch.size()));
}

RowLayout RowLayout::contiguous(int first, int count, std::span<const std::int32_t> context) {
  RowLayout layout;
  layout.context = context;
  for (int position = first; position < first + count; ++position)
    layout.add(position, position, context.subspan(static_cast<std::size_t>(position), 1));
  return layout;
}

RowLayout RowLayout::side_by_side(int count, std::span<const std::int32_t> context) {
  RowLayout layout;
  layout.context = context;
  const auto size = static_cast<std::int32_t>(context.size());
  for (std::int32_t own = size; own < size + count; ++own) layout.add(size, size, {&own, 1});
  return layout;
}

}  // namespace dex
