#include "train/ranks/rank_layout.h"

#include <catch2/catch.hpp>

#include "tests/support/errors.h"

using namespace dex;

TEST_CASE("stages fold in order onto ranks as evenly as their layers allow") {
  const auto first = [](std::vector<int> inner, int layers, int pipeline) {
    return rank_layout(DepthSet(std::move(inner), layers), pipeline, 0, pipeline).first_stage;
  };
  CHECK(first({10, 20}, 30, 3) == std::vector<int>{0, 1, 2, 3});
  CHECK(first({10, 20, 30}, 40, 2) == std::vector<int>{0, 2, 4});
  // 30 and 10 layers; 3 and 37 is worse
  CHECK(first({1, 2, 3, 30}, 40, 2) == std::vector<int>{0, 4, 5});
  CHECK(first({20, 22, 24}, 32, 3) ==
        // 20 whatever follows: the earliest cuts
        std::vector<int>{0, 1, 2, 4});
  // the largest divisor of 4 up to 3
  CHECK(rank_layout(DepthSet({10, 20}, 30), 4, 0).pipeline == 2);
  CHECK(rank_layout(DepthSet({10, 20}, 30), 6, 0).pipeline == 3);
  CHECK(rank_layout(DepthSet({10, 20}, 30), 5, 0).pipeline == 1);
  const RankLayout layout = rank_layout(DepthSet({10, 20}, 30), 6, 4, 3);
  CHECK(layout.replica() == 1);
  CHECK(layout.pipeline_rank() == 1);
  test::check_refused(ExitCode::usage, {"--stages is 2", "3 ranks"},
                      [] { rank_layout(DepthSet({10, 20}, 30), 3, 0, 2); });
  test::check_refused(ExitCode::usage, {"--stages is 4", "3 stages"},
                      [] { rank_layout(DepthSet({10, 20}, 30), 4, 0, 4); });
}

TEST_CASE("replicas share things as neighbours, the first one as many as any") {
  for (const int replicas : {1, 2, 3, 7})
    for (const std::int64_t count : {0, 1, 5, 7, 100}) {
      const RankLayout layout{.world = replicas};
      std::int64_t next = 0;
      for (int replica = 0; replica < replicas; ++replica) {
        const IndexRange share = share_of(count, layout, replica);
        CHECK(share.begin == next);
        CHECK(share.size() <= share_of(count, layout, 0).size());
        CHECK(share.size() >= count / replicas);
        next = share.end;
      }
      CHECK(next == count);
    }
}

TEST_CASE("GPUs are linked inside a replica and between the replicas of the same stages") {
  const DepthSet depths({10, 20}, 30);
  CHECK(gpu_peers(rank_layout(depths, 6, 4, 3)) == std::vector<int>{1, 3, 5});
  CHECK(gpu_peers(rank_layout(depths, 1, 0)).empty());
}
