// What a round of a method costs here: measured once by machine, shape of the model and method.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "common/explore/row_costs.h"
#include "common/model/stage_engine.h"
#include "decode/methods/dex.h"

namespace dex {

// `what`: the method and what of it changes a round. `shared_head`: see measure_costs().
std::shared_ptr<const RowCosts> round_costs(
    const ExploreOptions& options, const Session& session,
    const std::vector<std::unique_ptr<StageEngine>>& engines, const std::string& what,
    bool shared_head = false);

// A pass of the whole model, without exits.
std::shared_ptr<const RowCosts> plain_costs(const ExploreOptions& options, const Session& session);

// Seconds a token that may be expected where `hops` rounds bring one, or where drafts enter with
// it, as often right as public measurements of prompt lookup have found.
double estimated_seconds(const RowCosts& costs, double hops, bool drafts);

}  // namespace dex
