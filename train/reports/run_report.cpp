#include "train/reports/run_report.h"

namespace dex {
namespace {

using nlohmann::json;

NamedScores named_scores(const TrainState& state) {
  NamedScores lines;
  for (const char* name : {"none", "start", "trained"})
    if (state.evaluation.contains(name))
      lines.emplace_back(name, scores_of(state.evaluation[name]));
  return lines;
}

}  // namespace

RunReport::RunReport(MetricsLog metrics, std::vector<int> depths, std::int64_t epoch_steps,
                     MachineSpeeds speeds, int ranks)
    : metrics_(std::move(metrics)),
      depths_(std::move(depths)),
      epoch_steps_(epoch_steps),
      speeds_(std::move(speeds)),
      live_(depths_, speeds_.gemm_peak * ranks) {}

void RunReport::begin(std::int64_t step, std::int64_t last) {
  first_step_ = step;
  watch_ = {};
  progress_.emplace("training", std::max<std::int64_t>(0, last - step), "steps");
}

void RunReport::add(const StepReport& r) {
  json line = to_json(r, depths_);
  line["epoch"] = (r.step - 1) / epoch_steps_;
  if (speeds_.gemm_peak > 0) line["mfu"] = live_.mfu({.flops = r.flops, .seconds = r.seconds});
  metrics_.write(line);
  progress_->update(r.step - first_step_, live_.note({.loss = r.loss,
                                                      .agreement = r.agreement,
                                                      .tokens = double(r.tokens),
                                                      .flops = r.flops,
                                                      .seconds = r.seconds,
                                                      .skipped = r.skipped}));
  tokens_ += r.tokens;
  if (!r.skipped) last_loss_ = r.mean_loss;
}

void RunReport::add(std::int64_t step, const NamedScores& evaluation) {
  json line = {{"step", step}, {"evaluation", json::object()}};
  for (const auto& [name, scores] : evaluation) {
    line["evaluation"][name] = to_json(scores);
    if (speeds_.rounds.known()) line["forecast"][name] = forecast_json(speeds_.rounds, scores);
  }
  metrics_.write(line);
}

void RunReport::end() {
  seconds_ = watch_.seconds();
  progress_.reset();
}

std::string RunReport::evaluation_text(const TrainState& state) const {
  const NamedScores lines = named_scores(state);
  return score_table(lines, depths_) + forecast_table(speeds_.rounds, lines);
}

json RunReport::summary(const TrainState& state) const {
  json line = {{"depths", depths_},
               {"step", state.step},
               {"tokens", state.tokens},
               {"training_seconds", seconds_},
               {"tokens_per_second", seconds_ > 0 ? double(tokens_) / seconds_ : 0.0},
               {"evaluation", state.evaluation}};
  if (state.skipped > 0) line["skipped"] = state.skipped;
  for (const auto& [name, scores] : named_scores(state))
    if (speeds_.rounds.known()) line["forecast"][name] = forecast_json(speeds_.rounds, scores);
  if (last_loss_) line["loss"] = *last_loss_;
  return line;
}

}  // namespace dex
