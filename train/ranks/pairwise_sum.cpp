#include "train/ranks/pairwise_sum.h"

#include <algorithm>

namespace dex {

void PairwiseSum::add(SumNode node, at::Tensor tensor) {
  auto at = std::lower_bound(
      parts_.begin(), parts_.end(), node.begin,
      [](const auto& part, std::int64_t begin) { return part.first.begin < begin; });
  at = parts_.insert(at, {node, std::move(tensor)});
  for (;;) {  // with its neighbour, while that is there
    const auto [begin, size] = at->first;
    const bool left = begin % (2 * size) == 0;
    const auto other = left ? at + 1 : at - 1;
    if (left ? other == parts_.end() : at == parts_.begin()) return;
    if (other->first != SumNode{left ? begin + size : begin - size, size}) return;
    const auto first = left ? at : other;
    first->second.add_((first + 1)->second);
    first->first.size *= 2;
    at = parts_.erase(first + 1) - 1;
  }
}

at::Tensor PairwiseSum::total() && {
  if (parts_.empty()) return {};
  at::Tensor sum = std::move(parts_.front().second);
  for (std::size_t i = 1; i < parts_.size(); ++i) sum.add_(parts_[i].second);
  parts_.clear();
  return sum;
}

std::vector<SumNode> sum_nodes(std::int64_t begin, std::int64_t end) {
  std::vector<SumNode> nodes;
  while (begin < end) {
    std::int64_t size = 1;
    while (begin % (2 * size) == 0 && begin + 2 * size <= end) size *= 2;
    nodes.push_back({begin, size});
    begin += size;
  }
  return nodes;
}

}  // namespace dex
