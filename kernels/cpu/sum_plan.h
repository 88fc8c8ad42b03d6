// The chunks of a linear's sum in the order in which they are summed, and the slabs of them that a
// tile takes at a time. Private to kernels/cpu/linear*.cpp and their test.
#pragma once
#include <vector>

#include "kernels/linear.h"

namespace dex {

// Sums that wait for what comes after them lie on a stack, of no more than kMostWaiting.
constexpr int kMostWaiting = 4;

struct SumChunk {
  int begin = 0, count = 0;  // columns that x and the weight hold
  int place = 0;             // on the stack, of its part's sum
  bool first = false;        // of its part
  int merges = 0;            // sums below that are complete with it: the topmost is added first
  bool ends_sum = false;     // nothing comes after it
};

// Whole chunks of no more than kInputChunk columns together, so that a row of x has one stride.
struct Slab {
  int first_chunk = 0, end_chunk = 0;
  int begin = 0;  // column
};

// Empty parts have no chunk; a share of nothing else has none at all.
struct SumPlan {
  std::vector<SumChunk> chunks;
  std::vector<Slab> slabs;

  void make(const Linear& p);

 private:
  void add_part(int begin, int end);

  std::vector<int> waiting_;  // levels of the tree of what is on the stack
};

}  // namespace dex
