#include "train/ranks/replica_sum.h"

namespace dex {

at::Tensor replica_sum(RankMessages& ranks, Tag tag, PairwiseSum mine, std::int64_t count,
                       std::int64_t size, at::ScalarType type) {
  const RankLayout& layout = ranks.layout();
  if (layout.replicas() == 1) return std::move(mine).total();
  const int own = layout.replica(), replicas = layout.replicas();
  const auto begin = [&](int slice) { return size * slice / replicas; };
  const auto rank_of = [&](int replica) { return layout.rank_at(replica, layout.pipeline_rank()); };
  const auto slice_of = [&](const at::Tensor& whole, int slice) {
    return whole.slice(0, begin(slice), begin(slice + 1));
  };

  PairwiseSum slice;
  for (const auto& [node, whole] : mine.parts()) {
    for (int other = 0; other < replicas; ++other)
      if (other != own) ranks.send(tag, slice_of(whole, other), rank_of(other));
    slice.add(node, slice_of(whole, own).clone());
  }
  const std::int64_t values = begin(own + 1) - begin(own);
  for (int other = 0; other < replicas; ++other) {
    if (other == own) continue;
    const IndexRange theirs = share_of(count, layout, other);
    for (const SumNode& node : sum_nodes(theirs.begin, theirs.end))
      slice.add(node, ranks.receive(tag, rank_of(other), {values}, type));
  }
  const at::Tensor sum = std::move(slice).total();
  at::Tensor total = at::empty({size}, sum.options());
  slice_of(total, own).copy_(sum);
  for (int other = 0; other < replicas; ++other)
    if (other != own) ranks.send(tag, sum, rank_of(other));
  for (int other = 0; other < replicas; ++other)
    if (other != own)
      slice_of(total, other)
          .copy_(ranks.receive(tag, rank_of(other), {begin(other + 1) - begin(other)}, type));
  return total;
}

}  // namespace dex
