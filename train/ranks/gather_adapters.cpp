#include "train/ranks/gather_adapters.h"

namespace dex {

std::vector<AdapterWeights> gather_adapters(RankMessages& ranks,
                                            const std::vector<AdapterWeights>& own,
                                            const ExitSizes& one) {
  const RankLayout& layout = ranks.layout();
  if (layout.replica() != 0) return {};
  if (!ranks.leads()) {
    if (!own.empty()) ranks.send(Tag::state, flat_adapters(own), 0);
    return {};
  }
  std::vector<AdapterWeights> all = on_device(own, at::kCPU);
  for (int pipeline_rank = 1; pipeline_rank < layout.pipeline; ++pipeline_rank) {
    const ExitSizes theirs{layout.exits(pipeline_rank), one.hidden, one.width};
    if (theirs.exits == 0) continue;
    const at::Tensor vector =
        ranks.receive(Tag::state, layout.rank_at(0, pipeline_rank), {theirs.size()});
    for (AdapterWeights& exit : adapters_of(vector, theirs)) all.push_back(std::move(exit));
  }
  return all;
}

}  // namespace dex
