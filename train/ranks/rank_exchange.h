// What the ranks of a run tell each other beside the hidden rows: what they were asked for, and
// their exits' tensors.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/model/adapter.h"
#include "train/ranks/flat_adapters.h"
#include "train/ranks/ranks.h"

namespace dex {

// All ranks call it. Error(usage) on all of them, naming ranks, fields and values, unless all give
// the same object.
void agree(Ranks& ranks, const nlohmann::json& mine);

// All ranks call it. Error(usage) on all of them, naming two, unless each gives a text of its own.
// `what` it is.
void require_different(Ranks& ranks, const std::string& what, const std::string& mine);

// The exits of all positions on the leading rank, from replica 0; nothing on the others. All ranks
// call it. `one`: sizes of an exit.
std::vector<AdapterWeights> exits_of_all(Ranks& ranks, const std::vector<AdapterWeights>& own,
                                         const ExitSizes& one);

}  // namespace dex
