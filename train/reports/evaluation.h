// How well exits answer on held-out text, in the decoder's own terms: agreement with the final
// exit, earliest available depth, hops. Teacher-forced, at the rows the loss sees.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/model/adapter.h"
#include "train/teacher/teacher_states.h"

namespace dex {

struct ExitScores {
  std::int64_t rows = 0;
  // per non-final depth: share of rows whose best token is the final exit's
  std::vector<double> agreement;
  double first_ead = 0, stable_ead = 0;  // mean depth, in layers
  // mean over rows: unmasked first match + 1, DECS branch + 1
  double hops = 0, decs_hops = 0;
  // answers, and what full exploration would take to decode them
  std::int64_t texts = 0, rounds = 0;
  double s_x = 0;  // eq. (13): layers / mean stable depth

  double rounds_per_token() const { return rows > 0 ? double(rounds) / rows : 0; }
};

using NamedScores = std::vector<std::pair<std::string, ExitScores>>;  // by name of the exits

// A named set of adapters, one for each exit of this rank; no adapters means exits without.
struct ExitSet {
  std::string name;
  std::vector<AdapterWeights> adapters;
};

// One pass of the model for all sets. All ranks call it: replicas share the samples by
// micro-batches, each rank reads out its own exits, the leading one has the scores, the others
// nothing. `on_pass` hears how many passes of this replica's are done.
std::vector<ExitScores> evaluate(
    const TeacherStates& source, std::span<const Sample> samples, std::span<const ExitSet> sets,
    int micro_batch, const std::function<void(std::int64_t done, std::int64_t of)>& on_pass = {});

nlohmann::json to_json(const ExitScores& scores);
ExitScores scores_of(const nlohmann::json& json);

// An aligned table, a line per named set.
std::string score_table(const NamedScores& lines, const std::vector<int>& depths);

}  // namespace dex
