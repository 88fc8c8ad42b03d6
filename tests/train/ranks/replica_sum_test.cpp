#include "train/ranks/replica_sum.h"

#include <catch2/catch.hpp>

#include "tests/support/local_ranks.h"

using namespace dex;

namespace {

std::vector<at::Tensor> terms(std::int64_t count, std::int64_t size) {
  at::manual_seed(5);
  std::vector<at::Tensor> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(at::randn({size}) * at::pow(10.0, at::randn({size})));
  return all;
}

at::Tensor sum_of(const std::vector<at::Tensor>& all, IndexRange share) {
  PairwiseSum sum;
  for (std::int64_t i = share.begin; i < share.end; ++i) sum.add(i, all[i].clone());
  return std::move(sum).total();
}

}  // namespace

TEST_CASE(
    "every replica has the bits of one sum, with fewer terms than replicas and odd sizes too") {
  for (const int replicas : {1, 2, 3, 5})
    for (const std::int64_t count : {1, 2, 4, 7, 13})
      for (const std::int64_t size : {1, 4, 103}) {
        INFO(replicas << " replicas, " << count << " terms of " << size);
        const auto all = terms(count, size);
        std::vector<at::Tensor> seen(replicas);
        const auto errors =
            test::on_ranks(DepthSet({10, 20}, 30), replicas, 1, [&](RankMessages& ranks) {
              const RankLayout& layout = ranks.layout();
              const IndexRange share = share_of(count, layout, layout.replica());
              PairwiseSum mine;
              for (std::int64_t i = share.begin; i < share.end; ++i) mine.add(i, all[i].clone());
              seen[layout.rank] = replica_sum(ranks, Tag::gradients, std::move(mine), count, size);
            });
        CHECK(errors == std::vector<std::string>(replicas));
        const at::Tensor wanted = sum_of(all, {0, count});
        for (const at::Tensor& total : seen) CHECK(total.equal(wanted));
      }
}

TEST_CASE("replicas of different stages have sums of their own") {
  const auto all = terms(4, 10);
  std::vector<at::Tensor> seen(4);
  const auto errors = test::on_ranks(DepthSet({10}, 20), 4, 2, [&](RankMessages& ranks) {
    const RankLayout& layout = ranks.layout();
    PairwiseSum mine;
    mine.add(layout.replica(), all[layout.rank].clone());
    seen[layout.rank] = replica_sum(ranks, Tag::equations, std::move(mine), 2, 10);
  });
  CHECK(errors == std::vector<std::string>(4));
  for (int rank = 0; rank < 4; ++rank) {
    const int stage = rank % 2;
    CHECK(seen[rank].equal(all[stage] + all[stage + 2]));
  }
}
