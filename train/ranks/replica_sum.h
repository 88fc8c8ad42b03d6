// Sums over the replicas of a pipeline rank, by messages: each replica adds up a slice and sends it
// to the others.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>

#include "train/ranks/pairwise_sum.h"
#include "train/ranks/rank_messages.h"

namespace dex {

// The total, on every replica, of `count` >= 1 one-dimensional tensors of `size` values, of which
// this replica has added its share_of(count), where messages of this tag arrive. Its bits depend
// on the tensors alone.
at::Tensor replica_sum(RankMessages& ranks, Tag tag, PairwiseSum mine, std::int64_t count,
                       std::int64_t size, at::ScalarType type = at::kFloat);

}  // namespace dex
