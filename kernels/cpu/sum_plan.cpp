#include "kernels/cpu/sum_plan.h"

#include <algorithm>

namespace dex {

SumPlan::SumPlan(const Linear& p) {
  const InputParts parts = p.parts();
  const int origin = parts.begin(p.share.first);
  chunks.reserve(kInputParts + p.in / kInputChunk);
  slabs.reserve(chunks.capacity());
  for (int part = p.share.first; part < p.share.last; ++part) {
    const int begin = parts.begin(part) - origin, end = begin + parts.size(part);
    for (int k = begin; k == begin || k < end; k += kInputChunk) {
      const bool last = k + kInputChunk >= end;
      if (slabs.empty() || std::min(k + kInputChunk, end) - slabs.back().begin > kInputChunk)
        slabs.push_back({int(chunks.size()), int(chunks.size()), k});
      chunks.push_back({.begin = k,
                        .count = std::min(kInputChunk, end - k),
                        .level = merges_after(part - p.share.first),
                        .first = k == begin,
                        .last = last,
                        .ends_sum = last && part + 1 == p.share.last});
      slabs.back().end_chunk = int(chunks.size());
    }
  }
}

}  // namespace dex
