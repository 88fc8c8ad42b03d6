// Where a linear's sum over its input is cut, on every device and whatever share of it one holds.
//
// `in` falls into eight parts. A part's chunks, of at most 512 elements from its first one on, are
// summed each from zero and added in order. The parts meet in a balanced tree, the left one first:
//   ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7))
// An empty part counts -0, which changes no sum. Scales of outputs, bias and residual come after
// the tree. So 2, 4 or 8 devices that hold a subtree each exchange one partial sum and finish the
// tree of one device.
//
// Parts are as even as whole units of `in` allow. The unit of a linear that devices share out by
// outputs is a chunk: parts cost it nothing that chunks do not. Those whose input is shared out
// need parts that are even: units of a head behind attention, since heads are what devices share
// out, and else of 64 elements, what a GPU's ring takes of bf16 at a time and whole groups of steps
// of every tile on a CPU. Smaller ones would make parts too short for what their ends cost.
#pragma once
#include <cstdint>

#include "kernels/ceil_div.h"

namespace dex {

constexpr int kInputParts = 8;
constexpr int kInputChunk = 512;
constexpr int kSharedInputUnit = 64;

struct InputParts {
  int in = 0;              // of the whole linear, never of a share
  int unit = kInputChunk;  // elements that stay together; even

  // Parts are [begin(p), begin(p + 1)); begin(8) is `in`.
  constexpr int begin(int part) const {
    const std::int64_t at = std::int64_t{ceil_div(in, unit)} * part / kInputParts * unit;
    return at < in ? int(at) : in;
  }
  constexpr int size(int part) const { return begin(part + 1) - begin(part); }
};

// Parts [first, last) that one holds: a subtree of the tree, so 1, 2, 4 or 8 of them, aligned.
struct PartShare {
  int first = 0, last = kInputParts;

  constexpr int count() const { return last - first; }
  constexpr bool whole() const { return count() == kInputParts; }
  constexpr bool is_subtree() const {
    const int n = count();
    return first >= 0 && last <= kInputParts && (n == 1 || n == 2 || n == 4 || n == 8) &&
           first % n == 0;
  }
};

// How many finished sums to its left a part's sum is added to, when parts come in order: of the
// levels 0, 1, ... of the tree, one each. The result stays at the level of that number.
constexpr int merges_after(int part) {
  int merges = 0;
  for (; part & 1; part >>= 1) ++merges;
  return merges;
}

}  // namespace dex
