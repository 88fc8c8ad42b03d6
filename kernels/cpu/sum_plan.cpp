#include "kernels/cpu/sum_plan.h"

#include <algorithm>

namespace dex {

void SumPlan::make(const Linear& p) {
  chunks.clear(), slabs.clear(), waiting_.clear();
  const InputParts parts = p.parts();
  const int origin = parts.begin(p.share.first);
  for (int part = p.share.first; part < p.share.last; ++part) {
    const int begin = parts.begin(part) - origin, size = parts.size(part);
    if (size > 0) add_part(begin, begin + size);
    // An empty part lets what stands left of it rise in the tree as it is.
    bool sum = size > 0;
    const int levels = merges_after(part - p.share.first);
    for (int level = 0; level < levels; ++level) {
      if (waiting_.empty() || waiting_.back() != level) continue;
      waiting_.pop_back();
      chunks.back().merges += sum;
      sum = true;
    }
    if (sum) waiting_.push_back(levels);
  }
  if (!chunks.empty()) chunks.back().ends_sum = true;
}

void SumPlan::add_part(int begin, int end) {
  for (int k = begin; k < end; k += kInputChunk) {
    const int chunk_end = std::min(k + kInputChunk, end);
    if (slabs.empty() || chunk_end - slabs.back().begin > kInputChunk)
      slabs.push_back({int(chunks.size()), int(chunks.size()), k});
    chunks.push_back(
        {.begin = k, .count = chunk_end - k, .place = int(waiting_.size()), .first = k == begin});
    slabs.back().end_chunk = int(chunks.size());
  }
}

}  // namespace dex
