#include "train/ranks/rank_layout.h"

#include "common/base/error.h"
#include "kernels/ceil_div.h"

namespace dex {
namespace {

// The first stage of each pipeline rank, and the number of stages behind them, so that the largest
// sum of layers of a rank is least; the earliest such cuts.
std::vector<int> first_stages(const DepthSet& depths, int pipeline) {
  const int stages = depths.num_stages();
  const auto layers = [&](int begin, int end) {
    return depths.depth(end - 1) - (begin == 0 ? 0 : depths.depth(begin - 1));
  };
  // best[p][k]: least maximum for the first k stages on p ranks
  std::vector<std::vector<int>> best(
      std::size_t(pipeline) + 1,
      std::vector<int>(std::size_t(stages) + 1, depths.num_layers() + 1));
  auto cut = best;
  best[0][0] = 0;
  for (int p = 1; p <= pipeline; ++p)
    for (int k = p; k <= stages; ++k)
      for (int from = p - 1; from < k; ++from) {
        const int most = std::max(best[p - 1][from], layers(from, k));
        int& least = best[p][k];
        if (most < least) least = most, cut[p][k] = from;
      }
  std::vector<int> first(std::size_t(pipeline) + 1, stages);
  for (int p = pipeline; p > 0; --p) first[p - 1] = cut[p][first[p]];
  return first;
}

}  // namespace

IndexRange share_of(std::int64_t count, const RankLayout& layout, int replica) {
  const std::int64_t replicas = layout.replicas();
  return {ceil_div(count * replica, replicas), ceil_div(count * (replica + 1), replicas)};
}

RankLayout rank_layout(const DepthSet& depths, int world, int rank, int pipeline) {
  const int stages = depths.num_stages();
  if (pipeline == 0)
    for (pipeline = std::min(stages, world); world % pipeline != 0;) --pipeline;
  require(pipeline >= 1 && pipeline <= stages, ExitCode::usage,
          "--stages is {}, the depths {} make {} stages", pipeline, depths.text(), stages);
  require(world % pipeline == 0, ExitCode::usage,
          "--stages is {}, which does not divide the {} ranks", pipeline, world);
  return {.world = world,
          .rank = rank,
          .pipeline = pipeline,
          .first_stage = first_stages(depths, pipeline)};
}

std::vector<int> gpu_peers(const RankLayout& layout) {
  std::vector<int> peers;
  for (int rank = 0; rank < layout.world; ++rank) {
    const bool same_replica = rank / layout.pipeline == layout.replica(),
               same_stages = rank % layout.pipeline == layout.pipeline_rank();
    if (rank != layout.rank && (same_replica || same_stages)) peers.push_back(rank);
  }
  return peers;
}

}  // namespace dex
