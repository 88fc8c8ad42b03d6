// What this machine does at best and what decoding would cost on it: what MFU is measured against,
// and what turns predicted rounds into predicted tokens per second.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/explore/depth_set.h"
#include "common/model/round_times.h"
#include "kernels/types.h"
#include "train/ranks/rank_messages.h"
#include "train/reports/evaluation.h"

namespace dex {

struct MachineSpeeds {
  double gemm_peak = 0;  // operations per second; 0: not measured
  std::int64_t gemm_size = 0;
  RoundTimes rounds;  // not known when nothing is evaluated

  std::string text(const std::string& dtype) const;  // one line per measurement
};

// On the leading rank, others have nothing; all call it. With libtorch's threads as they are set;
// about two seconds for a small model. `device`: where training computes. `decoding`: time rounds,
// too, on the CPU, where decoding runs. The ranks of the first replica time their own stages, one
// rank after the other, so that those of one machine do not disturb each other.
MachineSpeeds measure_machine(RankMessages& ranks, const std::filesystem::path& model,
                              const DepthSet& depths, Dtype dtype, at::Device device,
                              std::int64_t width, bool decoding);

// Tokens per second that named scores predict for `dex decode --expand full`; empty when no rounds
// were timed.
std::string forecast_table(const RoundTimes& times, const NamedScores& lines);
nlohmann::json forecast_json(const RoundTimes& times, const ExitScores& scores);

}  // namespace dex
