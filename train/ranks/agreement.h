// What all ranks of a run must have alike, or each its own, checked before they start.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/ranks/rank_messages.h"

namespace dex {

// All ranks call it. Error(usage) on all of them, naming ranks, fields and values, unless all give
// the same object.
void require_agreement(RankMessages& ranks, const nlohmann::json& mine);

// All ranks call it. Error(usage) on all of them, naming two, unless each gives a text of its own.
// `what` it is.
void require_different(RankMessages& ranks, const std::string& what, const std::string& mine);

// What all ranks know between them, on all of them, `what` it is. All call it. Error(usage) on all,
// naming rank, key and values, where two give the same key another value.
std::map<std::string, std::string> agreed_union(RankMessages& ranks, const std::string& what,
                                                const std::map<std::string, std::string>& mine);

}  // namespace dex
