#include "train/machine_speeds.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "train/flops.h"

namespace dex {

std::string MachineSpeeds::text(const std::string& dtype) const {
  std::string text = fmt::format(
      "MFU is measured against {:.0f} GFLOP/s, the best {} matrix product of 1024 x 1024 seen here just now",
      1e-9 * gemm_peak, dtype);
  if (!rounds.known()) return text;
  std::vector<std::string> stages;
  for (std::size_t k = 0; k < rounds.stages.size(); ++k)
    stages.push_back(fmt::format("{:.1f} ms ({})", 1e3 * rounds.stages[k], rounds.rows[k]));
  return text + fmt::format(
                    "\na decoding round costs each explorer (rows) {}; a plain token {:.1f} ms: {}, {} "
                    "threads, {} tokens of context",
                    fmt::join(stages, ", "), 1e3 * rounds.plain, dtype, rounds.threads, rounds.context);
}

MachineSpeeds measure_machine(const std::filesystem::path& model, const DepthSet& depths, Dtype dtype,
                              std::int64_t width, bool decoding) {
  MachineSpeeds speeds{.gemm_peak = measure_gemm_peak(dtype)};
  if (decoding) speeds.rounds = measure_round_times(model, depths, dtype, width, at::get_num_threads());
  return speeds;
}

std::string forecast_table(const RoundTimes& times,
                           const std::vector<std::pair<std::string, ExitScores>>& lines) {
  if (!times.known()) return "";
  std::string text = fmt::format("{:<10}{:>14}{:>14}{:>18}{:>20}\n", "forecast", "rounds/token",
                                 "plain tok/s", "explorers here", "a machine for each");
  for (const auto& [name, scores] : lines) {
    const SpeedForecast f = speed_forecast(times, scores.rounds_per_token());
    text += fmt::format("{:<10}{:>14.3f}{:>14.1f}{:>18.1f}{:>20.1f}\n", name, scores.rounds_per_token(),
                        f.plain, f.shared, f.apart);
  }
  return text;
}

nlohmann::json forecast_json(const RoundTimes& times, const ExitScores& scores) {
  if (!times.known()) return nullptr;
  const SpeedForecast f = speed_forecast(times, scores.rounds_per_token());
  return {{"rounds_per_token", scores.rounds_per_token()},
          {"plain_tokens_per_second", f.plain},
          {"explorers_here_tokens_per_second", f.shared},
          {"a_machine_each_tokens_per_second", f.apart}};
}

}  // namespace dex
