// The adapters of all exits, which the ranks of a pipeline have between them, on the leading rank.
#pragma once
#include <vector>

#include "common/model/adapter.h"
#include "train/ranks/flat_adapters.h"
#include "train/ranks/rank_messages.h"

namespace dex {

// Those of replica 0, by exit, on the CPU; nothing on other ranks than the leading one. All ranks
// call it. `one`: sizes of an exit.
std::vector<AdapterWeights> gather_adapters(RankMessages& ranks,
                                            const std::vector<AdapterWeights>& own,
                                            const ExitSizes& one);

}  // namespace dex
