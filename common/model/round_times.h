// What a round of decoding costs on this machine: each stage's pass with the decoder's kernels,
// timed alone and cold.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/model/model.h"
#include "kernels/types.h"

namespace dex {

struct RoundTimes {  // seconds; of neighbouring stages, or all of a depth set
  // Layers, adapter and head of each explorer, or its share of a head that all share
  // (head_use.h), with the most rows that `full` mode gives it,
  std::vector<double> stages;
  std::vector<int> rows;  // which are these.
  // one row through all their layers, and the head once: a step of plain decoding
  double plain = 0;
  int threads = 0;  // that each was timed with
  int context = 0;  // tokens before the rows

  bool known() const { return plain > 0; }
  double slowest()
      // a round when every explorer has such a machine of its own; the wire costs nothing
      const;
  double sum() const;  // a round when all explorers take turns on this one
};

// Of the stages of `share`. Loads one after the other, beside whatever is loaded already. `width`
// is the adapters'.
RoundTimes measure_round_times(const std::filesystem::path& model, const DepthSet& depths,
                               StageShare share, Dtype dtype, std::int64_t width, int threads);

// Tokens per second that follow when a token takes so many rounds; 0 when the times are not known.
struct SpeedForecast {
  double plain = 0;   // plain decoding
  double shared = 0;  // explorers in turn on this machine
  double apart = 0;   // a machine like this one for each explorer
};
SpeedForecast speed_forecast(const RoundTimes& times, double rounds_per_token);

}  // namespace dex
