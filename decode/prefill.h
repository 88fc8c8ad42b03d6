// The context of a prompt, laid down in chunks with fixed boundaries from position 0.
#pragma once
#include <algorithm>

namespace dex {

constexpr int kPrefillChunk = 128;

// Calls chunk(first, count) over [0, size).
template <typename Chunk>
void for_each_chunk(int size, Chunk chunk) {
  for (int first = 0; first < size; first += kPrefillChunk)
    chunk(first, std::min(kPrefillChunk, size - first));
}

}  // namespace dex
