// What a round costs on these engines, by the number of rows that enter it.
#pragma once
#include <memory>
#include <vector>

#include "common/explore/row_costs.h"
#include "common/model/model.h"
#include "common/model/stage_engine.h"

namespace dex {

// All stages' times, one stage after the other, for 1 .. `rows` rows and one more; about a second
// at most, but two points in any case. Whatever the engines had in their caches is lost.
// `shared_head`: as explorers use it (head_use.h).
std::shared_ptr<const RowCosts> measure_costs(
    const ModelInfo& model, const std::vector<std::unique_ptr<StageEngine>>& engines, int rows,
    bool shared_head = false);

}  // namespace dex
