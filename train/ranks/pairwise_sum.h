// A sum of tensors numbered 0 .. count-1 whose rounding depends on the numbers alone, not on who
// adds them: neighbours are added in pairs, then pairs of pairs. A part of the numbers adds up to
// few tensors (its whole pairs), which other parts take.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace dex {

struct SumNode {
  // the sum of [begin, begin + size); size is a power of two and divides begin
  std::int64_t begin, size;
  bool operator==(const SumNode&) const = default;
};

class PairwiseSum {
 public:
  void add(std::int64_t number, at::Tensor tensor) { add(SumNode{number, 1}, std::move(tensor)); }
  void add(SumNode node, at::Tensor tensor);  // takes the tensor over: it is added to in place
  const std::vector<std::pair<SumNode, at::Tensor>>& parts() const { return parts_; }  // ascending
  at::Tensor total() &&;  // undefined when nothing was added

 private:
  std::vector<std::pair<SumNode, at::Tensor>> parts_;
};

// The parts that the numbers [begin, end) add up to.
std::vector<SumNode> sum_nodes(std::int64_t begin, std::int64_t end);

}  // namespace dex
