// The chunks of a linear's sum in the order in which they are summed, and the slabs of them that a
// tile takes at a time. Private to kernels/cpu/linear*.cpp and their test.
#pragma once
#include <vector>

#include "kernels/linear.h"

namespace dex {

constexpr int kLevels = 4;  // of the tree: sums that wait for their right neighbour

struct SumChunk {
  int begin = 0, count = 0;          // columns that x and the weight hold
  int level = 0;                     // where its part's sum waits: merges_after(part)
  bool first = false, last = false;  // of its part
  bool ends_sum = false;             // nothing comes after it
};

// Whole chunks of no more than kInputChunk columns together, so that a row of x has one stride.
struct Slab {
  int first_chunk = 0, end_chunk = 0;
  int begin = 0;  // column
};

struct SumPlan {
  std::vector<SumChunk> chunks;
  std::vector<Slab> slabs;

  explicit SumPlan(const Linear& p);
};

}  // namespace dex
