#include "train/ranks/gather_adapters.h"

#include <catch2/catch.hpp>

#include "tests/support/rank_threads.h"

using namespace dex;

namespace {

RankLayout three_depths(int world, int pipeline) {
  return rank_layout(DepthSet({1, 2, 3}, 4), world, 0, pipeline);
}

constexpr ExitSizes kOneExit{.exits = 1, .hidden = 2, .width = 3};

// Numbers that tell the replica, the depth and the place.
AdapterWeights exit_weights(int replica, int depth) {
  std::int64_t next = 1000 * replica + 100 * depth;
  const auto numbers = [&](std::vector<std::int64_t> shape) {
    const std::int64_t first = next;
    next += c10::multiply_integers(shape);
    return at::arange(first, next, at::kFloat).view(shape);
  };
  return {.norm = numbers({2}),
          .up = numbers({3, 2}),
          .up_bias = numbers({3}),
          .down = numbers({2, 3}),
          .down_bias = numbers({2}),
          .alpha = numbers({})};
}

bool equal(const AdapterWeights& a, const AdapterWeights& b) {
  const auto left = a.named(), right = b.named();
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!left[i].second.equal(right[i].second)) return false;
  return true;
}

}  // namespace

TEST_CASE("the leading rank has the exits of all positions by depth, from the first replica") {
  for (int pipeline : {1, 2, 3, 4})
    for (int replicas : {1, 2}) {
      INFO(pipeline << " positions, " << replicas << " replicas");
      const RankLayout layout = three_depths(pipeline * replicas, pipeline);
      std::vector<std::vector<AdapterWeights>> by_rank(layout.world);
      const auto errors = test::on_every_rank(layout, [&](RankMessages& ranks) {
        const RankLayout& mine = ranks.layout();
        const int first = mine.first_exit(mine.pipeline_rank());
        std::vector<AdapterWeights> own;
        for (int k = first; k < first + mine.exits(mine.pipeline_rank()); ++k)
          own.push_back(exit_weights(mine.replica(), k));
        by_rank[mine.rank] = gather_adapters(ranks, own, kOneExit);
      });
      for (const auto& error : errors) CHECK_FALSE(error);
      REQUIRE(by_rank[0].size() == 3);
      for (int k = 0; k < 3; ++k) CHECK(equal(by_rank[0][k], exit_weights(0, k)));
      for (std::size_t rank = 1; rank < by_rank.size(); ++rank) CHECK(by_rank[rank].empty());
    }
}
