// Where the rows of one stage call stand: in the committed context of their sequence, or on a path
// of the trie beyond it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace dex {

// Row i sees positions [0, context_size[i]) of the context, then its trie ancestors
// ancestors[ancestors_begin[i] .. ancestors_begin[i+1]) in position order, its own row last.
struct RowLayout {
  int sequence = 0;                        // all rows of a call belong to it
  std::vector<std::int32_t> positions;     // (rows)
  std::vector<std::int32_t> cache_rows;    // (rows): where each row's own K and V go
  std::span<const std::int32_t> context;   // position -> cache row
  std::vector<std::int32_t> context_size;  // (rows)
  std::vector<std::int32_t> ancestors, ancestors_begin{0};

  int rows() const { return int(positions.size()); }

  // One row more. `path` are the cache rows between the context and this row, its own last.
  void add(std::int32_t position, std::int32_t context_rows, std::span<const std::int32_t> path);

  // Rows at positions first .. first+count-1 whose cache rows are context[position] (prefill,
  // teacher forcing).
  static RowLayout contiguous(int first, int count, std::span<const std::int32_t> context);

  // Rows beside each other after all of `context`, as candidates for one position are; cache rows
  // from context.size() on.
  static RowLayout side_by_side(int count, std::span<const std::int32_t> context);
};

}  // namespace dex
