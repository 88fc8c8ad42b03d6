// The context of a prompt, laid down in chunks with fixed boundaries from position 0: a prompt's
// states do not depend on what else is read.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "common/explore/row_layout.h"

namespace dex {

constexpr int kPrefillChunk = 128;

// Calls chunk(layout, first, count) for the chunks of a context: positions [first, first + count),
// which stand at the cache rows context[position].
template <typename Chunk>
void each_prefill_chunk(std::span<const std::int32_t> context, const Chunk& chunk) {
  const int size = context.size();
  for (int first = 0; first < size; first += kPrefillChunk) {
    const int count = std::min(kPrefillChunk, size - first);
    chunk(RowLayout::contiguous(first, count, context), first, count);
  }
}

}  // namespace dex
