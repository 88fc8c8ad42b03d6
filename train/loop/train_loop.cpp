#include "train/loop/train_loop.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/log.h"
#include "train/loop/held_out.h"
#include "train/loop/run_start.h"

namespace dex {

TrainLoop::TrainLoop(const TrainOptions& options, const Model& model, TrainingData data,
                     std::function<bool()> stop_wanted)
    : TrainLoop(options, model, std::move(data), std::move(stop_wanted),
                RankMessages(rank_layout(model.depths, 1, 0))) {}

TrainLoop::TrainLoop(const TrainOptions& options, const Model& model, TrainingData data,
                     std::function<bool()> stop_wanted, RankMessages ranks, MachineSpeeds speeds)
    : setup_(options, model, std::move(data), std::move(stop_wanted), std::move(ranks)),
      schedule_{.total_steps = setup_.total_steps,
                .peak = options.learning_rate,
                .warmup_share = options.warmup},
      source_(model, setup_.ranks),
      steps_(options, source_,
             PassScheduler(
                 source_, [this](std::int64_t step) { return setup_.batch(step); },
                 options.batch_size, options.micro_batch),
             setup_.stop_wanted),
      directory_(setup_),
      speeds_(std::move(speeds)) {
  require_same_run(setup_);
  open_cache();
}

void TrainLoop::open_cache() {
  if (setup_.options.cache_states.empty()) return;
  check_for_ranks(setup_.options, setup_.ranks.layout().world);
  cache_.emplace(setup_.options.cache_states, setup_.model, setup_.data.digest,
                 !setup_.options.allow_unlocked);
  std::int64_t rows = setup_.data.targets;
  for (const Sample& sample : setup_.data.held_out) rows += loss_rows(sample);
  cache_->require_room(rows);
  source_.keep_in(*cache_);
}

void TrainLoop::prepare() {
  if (learner_.optimizer) return;
  const bool fresh = start_run(setup_, source_, directory_, learner_);
  if (setup_.ranks.leads()) open_report(fresh);
}

void TrainLoop::open_report(bool fresh) {
  const TrainState& state = learner_.state;
  const bool evaluates_again =
      state.evaluation.empty() || evaluation_due() || state.step == setup_.total_steps;
  report_.emplace(
      MetricsLog(setup_.options.out / "metrics.jsonl", fresh ? -1 : state.step, evaluates_again),
      setup_.depths, setup_.order.epoch_steps(), speeds_, setup_.ranks.layout().world);
  directory_.open_best(learner_, fresh);
}

TrainOutcome TrainLoop::run() {
  prepare();
  evaluate_start();
  if (!train()) {
    spdlog::info("stopped after step {} of {}, saved; --resume goes on", learner_.state.step,
                 setup_.total_steps);
    return outcome(false);
  }
  evaluate({{"trained", learner_.weights}});
  const auto all = directory_.gather(learner_.weights);
  if (setup_.ranks.leads()) {
    directory_.write_adapters(all);
    if (!setup_.data.held_out.empty())
      spdlog::info("on {} held-out samples:\n{}", setup_.data.held_out.size(),
                   report_->evaluation_text(learner_.state));
  }
  return outcome(true);
}

bool TrainLoop::train() {
  const std::int64_t total = setup_.total_steps, stop_after = setup_.options.stop_after,
                     last = stop_after > 0 ? std::min(stop_after, total) : total,
                     every = setup_.options.eval_every;
  const std::int64_t& step = learner_.state.step;
  if (report_) report_->begin(step, last);
  for (bool going = true; going && step < last;) {
    if (evaluation_due()) evaluate({{"trained", learner_.weights}});
    going = train_until(every > 0 ? std::min(last, (step / every + 1) * every) : last);
  }
  save();
  if (report_) report_->end();
  return step == total;
}

// No pass is begun past `end`: the evaluation there needs the ranks for itself.
bool TrainLoop::train_until(std::int64_t end) {
  const std::int64_t& step = learner_.state.step;
  const std::int64_t save_every = setup_.options.save_every;
  steps_.start(step, end);
  while (step < end) {
    const auto report =
        steps_.run(step, schedule_.rate(step), learner_.weights, *learner_.optimizer);
    if (!report) return false;
    count(*report);
    if (save_every > 0 && step % save_every == 0) save();
    if (report->stop) return false;
  }
  return true;
}

void TrainLoop::count(const StepReport& step) {
  TrainState& state = learner_.state;
  if (step.skipped)
    skip_or_fail(step);
  else
    state.skipped_in_row = 0;
  ++state.step;
  state.tokens += step.tokens;
  if (report_) report_->add(step);
}

void TrainLoop::skip_or_fail(const StepReport& step) {
  TrainState& state = learner_.state;
  const bool skip = setup_.options.on_nan == "skip";
  if (!skip || state.skipped_in_row + 1 >= setup_.options.nan_limit) {
    save();
    directory_.wait_for_files();
    fail(ExitCode::usage,
         "step {}: the loss is {} and the gradient's norm {}{}; the steps before it are saved; a "
         "lower --lr or --dtype f32 may help",
         step.step, step.mean_loss, step.gradient_norm,
         skip ? fmt::format(", after {} skipped in a row", state.skipped_in_row) : "");
  }
  ++state.skipped;
  ++state.skipped_in_row;
  if (setup_.ranks.leads())
    spdlog::warn("step {} is skipped: the loss is {} and the gradient's norm {}", step.step,
                 step.mean_loss, step.gradient_norm);
}

bool TrainLoop::evaluation_due() const {
  const std::int64_t step = learner_.state.step, every = setup_.options.eval_every;
  return every > 0 && step > 0 && step % every == 0 && step < setup_.total_steps;
}

// Also where an earlier part of the run was not asked for an evaluation.
void TrainLoop::evaluate_start() {
  if (!learner_.state.evaluation.empty()) return;
  std::vector<ExitSet> sets{{"none", {}}};
  if (learner_.state.step == 0) sets.push_back({"start", learner_.weights});
  evaluate(sets);
}

// Saved before: whoever is asked to stop meanwhile loses no step, and the best adapters have their
// checkpoint.
void TrainLoop::evaluate(const std::vector<ExitSet>& sets) {
  if (setup_.data.held_out.empty()) return;
  save();
  directory_.wait_for_files();
  const NamedScores scores = evaluate_held_out(setup_, source_, sets, learner_, directory_);
  if (report_) report_->add(learner_.state.step, scores);
}

void TrainLoop::save() {
  directory_.save(learner_);
  if (cache_) cache_->flush();  // last: a cache that cannot be written costs no step
}

TrainOutcome TrainLoop::outcome(bool finished) const {
  if (!report_) return {finished, {{"step", learner_.state.step}}};
  nlohmann::json line = {
      {"command", "train"},
      {"status", finished ? "finished" : "stopped"},
      {"out", setup_.options.out.string()},
      {"steps", setup_.total_steps},
      {"parameters", std::int64_t(setup_.depths.size()) * setup_.sizes(1).parameters()}};
  if (const auto step = directory_.best_step()) line["best_step"] = *step;
  line.update(report_->summary(learner_.state));
  return {finished, line};
}

}  // namespace dex
