#include "train/reports/machine_speeds.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "train/reports/flops.h"

namespace dex {
namespace {

// For other ranks: plain, then seconds and rows of each stage.
at::Tensor numbers_of(const RoundTimes& times) {
  std::vector<double> numbers{times.plain};
  for (std::size_t k = 0; k < times.stages.size(); ++k)
    numbers.insert(numbers.end(), {times.stages[k], double(times.rows[k])});
  return at::tensor(numbers, at::kDouble);
}

void append(const at::Tensor& numbers, RoundTimes& times) {
  const double* number = numbers.data_ptr<double>();
  times.plain += *number++;
  for (; number < numbers.data_ptr<double>() + numbers.numel(); number += 2) {
    times.stages.push_back(number[0]);
    times.rows.push_back(int(number[1]));
  }
}

}  // namespace

std::string MachineSpeeds::text(const std::string& dtype) const {
  std::string text = fmt::format(
      "MFU is measured against {:.0f} GFLOP/s, the best {} matrix product of {} x {} seen here "
      "just now",
      1e-9 * gemm_peak, dtype, gemm_size, gemm_size);
  if (!rounds.known()) return text;
  std::vector<std::string> stages;
  for (std::size_t k = 0; k < rounds.stages.size(); ++k)
    stages.push_back(fmt::format("{:.1f} ms ({})", 1e3 * rounds.stages[k], rounds.rows[k]));
  return text +
         fmt::format(
             "\na decoding round costs each explorer (rows) {}; a plain token {:.1f} ms: {}, {} "
             "threads, {} tokens of context",
             fmt::join(stages, ", "), 1e3 * rounds.plain, dtype, rounds.threads, rounds.context);
}

MachineSpeeds measure_machine(RankMessages& ranks, const std::filesystem::path& model,
                              const DepthSet& depths, Dtype dtype, at::Device device,
                              std::int64_t width, bool decoding) {
  MachineSpeeds speeds;
  if (ranks.leads()) {
    speeds.gemm_size = peak_gemm_size(device);
    speeds.gemm_peak = measure_gemm_peak(dtype, device);
  }
  const RankLayout& layout = ranks.layout();
  if (!decoding || layout.replica() > 0) return speeds;
  if (!ranks.first()) ranks.receive_text(Tag::times, layout.rank - 1);  // its turn
  const RoundTimes own =
      measure_round_times(model, depths, layout.stages(), dtype, width, at::get_num_threads());
  if (!ranks.last()) ranks.send(Tag::times, std::string(), layout.rank + 1);
  if (!ranks.leads()) {
    ranks.send(Tag::times, numbers_of(own), 0);
    return speeds;
  }
  speeds.rounds = own;
  for (int rank = 1; rank < layout.pipeline; ++rank) {  // of the first replica
    const StageShare share = layout.stages(rank);
    append(ranks.receive(Tag::times, rank, {1 + 2 * (share.end - share.begin)}, at::kDouble),
           speeds.rounds);
  }
  return speeds;
}

std::string forecast_table(const RoundTimes& times, const NamedScores& lines) {
  if (!times.known()) return "";
  std::string text = fmt::format("{:<10}{:>14}{:>14}{:>18}{:>20}\n", "forecast", "rounds/token",
                                 "plain tok/s", "explorers here", "a machine for each");
  for (const auto& [name, scores] : lines) {
    const SpeedForecast f = speed_forecast(times, scores.rounds_per_token());
    text += fmt::format("{:<10}{:>14.3f}{:>14.1f}{:>18.1f}{:>20.1f}\n", name,
                        scores.rounds_per_token(), f.plain, f.shared, f.apart);
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
