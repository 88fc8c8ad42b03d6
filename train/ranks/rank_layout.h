// Which share of the work each rank of a training run has. `pipeline` ranks share the layers of a
// replica of the model: rank = replica * pipeline + pipeline rank. A stage is the layers between
// two depths of the explored depth set; a pipeline rank has one or more of them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/explore/depth_set.h"
#include "common/model/model.h"

namespace dex {

struct RankLayout {
  int world = 1, rank = 0, pipeline = 1;
  // pipeline rank p has the stages [first_stage[p], first_stage[p + 1])
  std::vector<int> first_stage;

  int replicas() const { return world / pipeline; }
  int replica() const { return rank / pipeline; }
  int pipeline_rank() const { return rank % pipeline; }
  int rank_at(int replica, int pipeline_rank) const { return replica * pipeline + pipeline_rank; }
  StageShare stages(int pipeline_rank) const {
    return {first_stage.at(pipeline_rank), first_stage.at(pipeline_rank + 1)};
  }
  int first_exit(int pipeline_rank) const {
    return std::min(first_stage.at(pipeline_rank), first_stage.back() - 1);
  }
  int exits(int pipeline_rank) const {  // non-final depths there
    return first_exit(pipeline_rank + 1) - first_exit(pipeline_rank);
  }
  StageShare stages() const { return stages(pipeline_rank()); }
  // Passes a rank has begun when it finishes one. The rank behind is one less ahead; one more than
  // that hides the way between them.
  int passes_ahead(int pipeline_rank) const {
    return pipeline - pipeline_rank + (pipeline > 1 ? 1 : 0);
  }
};

struct IndexRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// The share of `count` things that a replica has: neighbours; the first replica has as many as any.
IndexRange share_of(std::int64_t count, const RankLayout& layout, int replica);

// The stages go in order to `pipeline` ranks so that the most layers on one are as few as can be.
// 0: the largest divisor of the world size that is at most the number of stages. Error(usage) when
// it does not divide the world or exceeds the stages.
RankLayout rank_layout(const DepthSet& depths, int world, int rank, int pipeline = 0);

// The ranks that a rank exchanges hidden rows and gradients with, by GPU link where there is one.
std::vector<int> gpu_peers(const RankLayout& layout);

}  // namespace dex
