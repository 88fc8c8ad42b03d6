// The closed-form start where several ranks share the passes and the depths.
#pragma once
#include <functional>
#include <vector>

#include "common/model/adapter.h"
#include "train/ranks/rank_messages.h"
#include "train/teacher/teacher_states.h"

namespace dex {

// The start of this rank's exits, from the rows of all passes. Each replica makes its share of
// them; the sum is in the order of the passes, so its bits do not depend on who made which.
// `on_pass` hears after each how many of its own are done.
std::vector<AdapterWeights> ridge_over_ranks(
    const TeacherStates& source, const std::vector<std::vector<Sample>>& passes,
    const std::function<void(std::int64_t done, std::int64_t of)>& on_pass);

}  // namespace dex
