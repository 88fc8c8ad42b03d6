#include "train/loop/train_loop.h"

#include <algorithm>

#include "checkpoints/adapter_file.h"
#include "checkpoints/checkpoint.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/version.h"
#include "train/loss/ridge_over_ranks.h"
#include "train/ranks/rank_exchange.h"
#include "train/reports/flops.h"

namespace dex {
namespace {

using nlohmann::json;

std::vector<int> inner_depths(const DepthSet& depths) {
  require(depths.num_stages() >= 2, ExitCode::usage,
          "--depths names no depth before the last layer, {}, so there is nothing to train",
          depths.num_layers());
  return {depths.depths().begin(), depths.depths().end() - 1};
}

std::vector<int> own_part(const std::vector<int>& depths, const Model& model) {
  const auto begin = depths.begin() + model.share.begin;
  return {begin, begin + model.exits()};
}

// What ranks must agree on beside the run's identity, or they would wait for each other in vain.
json control_of(const TrainOptions& o) {
  return {{"save_every", o.save_every},
          {"stop_after", o.stop_after},
          {"eval_every", o.eval_every},
          {"eval_samples", o.eval_samples},
          {"keep", o.keep},
          {"on_nan", o.on_nan},
          {"nan_limit", o.nan_limit},
          {"resume", o.resume},
          {"deterministic", o.deterministic},
          {"out", o.out.string()}};
}

[[noreturn]] void leave_for_now(const char* what) {
  fail(ExitCode::temporary, "asked to stop during {}; --resume goes on", what);
}

}  // namespace

TrainLoop::TrainLoop(const TrainOptions& options, const Model& model, TrainingData data,
                     std::function<bool()> stop_wanted)
    : TrainLoop(options, model, std::move(data), std::move(stop_wanted),
                Ranks(rank_layout(model.depths, 1, 0))) {}

TrainLoop::TrainLoop(const TrainOptions& options, const Model& model, TrainingData data,
                     std::function<bool()> stop_wanted, Ranks ranks, MachineSpeeds speeds)
    : options_(options),
      model_(model),
      ranks_(std::move(ranks)),
      data_(std::move(data)),
      stop_wanted_(std::move(stop_wanted)),
      depths_(inner_depths(model.depths)),
      own_depths_(own_part(depths_, model)),
      order_(data_, options.seed, options.batch_size),
      total_steps_(options.steps > 0 ? options.steps : options.epochs * order_.epoch_steps()),
      schedule_{.total_steps = total_steps_,
                .peak = options.learning_rate,
                .warmup_share = options.warmup},
      source_(model, ranks_),
      steps_(options, source_,
             PassScheduler(
                 source_, [this](std::int64_t step) { return batch_of(step); }, options.batch_size,
                 options.micro_batch),
             stop_wanted_),
      identity_(identity_of(options)),
      speeds_(std::move(speeds)) {
  identity_["depths"] = model.depths.text();
  identity_["model_fingerprint"] = model.fingerprint;
  identity_["data_digest"] = data_.digest;
  json asked = {{"version", version()},
                {"world_size", ranks_.layout().world},
                {"stages", ranks_.layout().pipeline}};
  asked.update(identity_);
  asked.update(control_of(options_));
  agree(ranks_, asked);
  open_cache();
}

void TrainLoop::open_cache() {
  if (options_.cache_states.empty()) return;
  check_for_ranks(options_, ranks_.layout().world);
  cache_.emplace(options_.cache_states, model_, data_.digest);
  std::int64_t rows = data_.targets;
  for (const Sample& sample : data_.held_out) rows += loss_rows(sample);
  cache_->require_room(rows);
  source_.keep_in(*cache_);
}

Batch TrainLoop::batch_of(std::int64_t step) const {
  const ExitSizes exits = sizes(std::int64_t(depths_.size()));
  return make_batch(
      order_.samples(step), {std::size_t(options_.micro_batch), options_.micro_tokens},
      [&](const Sample& sample) {
        return step_flops(model_.config, exits, model_.config.vocab_size, std::span(&sample, 1));
      });
}

ExitSizes TrainLoop::sizes(std::int64_t exits) const {
  const std::int64_t hidden = model_.config.hidden_size;
  return {exits, hidden, options_.width_for(hidden)};
}

std::vector<AdapterWeights> TrainLoop::start() {
  if (options_.init == "ridge") {
    std::optional<Progress> progress;
    const auto passes = order_.first_passes(options_.ridge_tokens, options_.micro_batch);
    return ridge_over_ranks(source_, passes, [&](std::int64_t done, std::int64_t of) {
      if (stop_wanted_()) leave_for_now("the closed-form start");
      if (!progress && ranks_.leads()) progress.emplace("closed-form start", of, "passes");
      if (progress) progress->update(done);
    });
  }
  std::vector<AdapterWeights> weights;
  for (int depth : own_depths_)
    weights.push_back(
        AdapterWeights::paper_start(model_.config, sizes(1).width, options_.seed, depth));
  return weights;
}

std::string TrainLoop::found_checkpoint() {
  if (!ranks_.leads()) return ranks_.receive_text(Kind::agree, 0);
  make_directory(options_.out);
  lock_.emplace(options_.out);  // before it is looked at: another run may be writing there still
  const auto root = options_.out / "checkpoints";
  const CheckpointSearch search = newest_checkpoint(root);
  for (const std::string& reason : search.passed_over)
    spdlog::warn("checkpoint passed over: {}", reason);
  require(options_.resume || (!search.step && search.passed_over.empty()), ExitCode::usage,
          "{}: holds checkpoints of an earlier run; --resume goes on with it, another --out starts "
          "a new run",
          root.string());
  const std::string found = search.step ? search.dir.filename().string() : "";
  for (int rank = 1; rank < ranks_.layout().world; ++rank) ranks_.send(Kind::agree, found, rank);
  return found;
}

void TrainLoop::prepare() {
  if (optimizer_) return;
  const std::string found = found_checkpoint();
  const ExitSizes own = sizes(std::int64_t(own_depths_.size()));
  weights_ =
      on_device(found.empty() ? start() : adapters_of(at::zeros({own.size()}), own), model_.device);
  optimizer_.emplace(weights_, own_depths_, options_.weight_decay);
  if (!found.empty()) {
    const auto dir = options_.out / "checkpoints" / found;
    require(std::filesystem::is_directory(dir), ExitCode::usage,
            "{}: is not here, but rank 0 sees it; all ranks need the same --out", dir.string());
    state_ = load_state(dir, identity_, depths_, own_depths_, weights_, *optimizer_);
    saved_step_ = state_.step;
    spdlog::info("going on after step {} of {}, from {}", state_.step, total_steps_, dir.string());
  }
  if (ranks_.leads()) open_report(found.empty());
}

void TrainLoop::open_report(bool fresh) {
  const bool evaluates_again =
      state_.evaluation.empty() || evaluation_due() || state_.step == total_steps_;
  report_.emplace(
      MetricsLog(options_.out / "metrics.jsonl", fresh ? -1 : state_.step, evaluates_again),
      depths_, order_.epoch_steps(), speeds_, ranks_.layout().world);
  best_.emplace(options_.out / "best", fresh);
  if (!fresh)
    prune_checkpoints(options_.out / "checkpoints", state_.step, options_.keep, best_->step());
}

void TrainLoop::pass_over(const StepReport& step) {
  const bool skip = options_.on_nan == "skip";
  if (!skip || state_.skipped_in_row + 1 >= options_.nan_limit) {
    save();
    wait_for_files();
    fail(ExitCode::usage,
         "step {}: the loss is {} and the gradient's norm {}{}; the steps before it are saved; a "
         "lower --lr "
         "or "
         "--dtype f32 may help",
         step.step, step.mean_loss, step.gradient_norm,
         skip ? fmt::format(", after {} skipped in a row", state_.skipped_in_row) : "");
  }
  ++state_.skipped;
  ++state_.skipped_in_row;
  if (ranks_.leads())
    spdlog::warn("step {} is skipped: the loss is {} and the gradient's norm {}", step.step,
                 step.mean_loss, step.gradient_norm);
}

void TrainLoop::take_in(const StepReport& step) {
  if (step.skipped)
    pass_over(step);
  else
    state_.skipped_in_row = 0;
  ++state_.step;
  state_.tokens += step.tokens;
  if (report_) report_->add(step);
}

std::vector<AdapterWeights> TrainLoop::of_all_ranks(const std::vector<AdapterWeights>& own) {
  return exits_of_all(ranks_, own, sizes(1));
}

void TrainLoop::save() {
  if (saved_step_ != state_.step) {
    const TrainTensors all{.weights = of_all_ranks(weights_),
                           .first = of_all_ranks(optimizer_->first()),
                           .second = of_all_ranks(optimizer_->second())};
    if (ranks_.leads())
      save_state(options_.out / "checkpoints", options_.keep, state_, identity_, depths_, all,
                 optimizer_->steps(), best_->step());
    saved_step_ = state_.step;
  }
  if (cache_) cache_->flush();  // last: a cache that cannot be written costs no step
}

// A rank that fails wakes the others, and rank 0 may be writing still.
void TrainLoop::wait_for_files() {
  if (!ranks_.leads()) ranks_.receive_text(Kind::agree, 0);
  for (int rank = 1; ranks_.leads() && rank < ranks_.layout().world; ++rank)
    ranks_.send(Kind::agree, "", rank);
}

// Saved before: whoever is asked to stop meanwhile loses no step, and the best adapters have their
// checkpoint.
void TrainLoop::score(const std::vector<ExitSet>& sets) {
  if (data_.held_out.empty()) return;
  save();
  wait_for_files();
  std::optional<Progress> progress;
  const auto scores = evaluate(source_, data_.held_out, sets, options_.micro_batch,
                               [&](std::int64_t done, std::int64_t of) {
                                 if (stop_wanted_()) leave_for_now("the evaluation");
                                 if (!progress && report_)
                                   progress.emplace("held-out text", of, "passes");
                                 if (progress) progress->update(done);
                               });
  const auto all = of_all_ranks(weights_);
  if (!ranks_.leads()) return;
  NamedScores named;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    state_.evaluation[sets[i].name] = to_json(scores[i]);
    if (!sets[i].adapters.empty())
      best_->offer(state_.step, scores[i], adapter_config(),
                   stored_views(named_weights(depths_, all)));
    named.emplace_back(sets[i].name, scores[i]);
  }
  report_->add(state_.step, named);
}

bool TrainLoop::evaluation_due() const {
  return options_.eval_every > 0 && state_.step > 0 && state_.step % options_.eval_every == 0 &&
         state_.step < total_steps_;
}

// No pass is begun past `end`: the evaluation there needs the ranks for itself.
bool TrainLoop::train_until(std::int64_t end) {
  steps_.start(state_.step, end);
  while (state_.step < end) {
    const auto step = steps_.run(state_.step, schedule_.rate(state_.step), weights_, *optimizer_);
    if (!step) return false;
    take_in(*step);
    if (options_.save_every > 0 && state_.step % options_.save_every == 0) save();
    if (step->stop) return false;
  }
  return true;
}

bool TrainLoop::train() {
  const std::int64_t last =
      options_.stop_after > 0 ? std::min(options_.stop_after, total_steps_) : total_steps_;
  const std::int64_t every = options_.eval_every;
  if (report_) report_->begin(state_.step, last);
  for (bool going = true; going && state_.step < last;) {
    if (evaluation_due()) score({{"trained", weights_}});
    going = train_until(every > 0 ? std::min(last, (state_.step / every + 1) * every) : last);
  }
  save();
  if (report_) report_->end();
  return state_.step == total_steps_;
}

AdapterConfig TrainLoop::adapter_config() const {
  return {.depths = depths_,
          .hidden_size = model_.config.hidden_size,
          .width = sizes(1).width,
          .model_fingerprint = model_.fingerprint,
          .data_digest = data_.digest,
          .tau = options_.tau};
}

TrainOutcome TrainLoop::outcome(bool finished) const {
  if (!report_) return {finished, {{"step", state_.step}}};
  json line = {{"command", "train"},
               {"status", finished ? "finished" : "stopped"},
               {"out", options_.out.string()},
               {"steps", total_steps_},
               {"parameters", std::int64_t(depths_.size()) * sizes(1).parameters()}};
  if (best_->step()) line["best_step"] = *best_->step();
  line.update(report_->summary(state_));
  return {finished, line};
}

TrainOutcome TrainLoop::run() {
  prepare();
  if (state_.evaluation.empty()) {  // also where an earlier part of the run was not asked for any
    std::vector<ExitSet> sets;
    sets.push_back({"none", {}});
    if (state_.step == 0) sets.push_back({"start", weights_});
    score(sets);
  }
  if (!train()) {
    spdlog::info("stopped after step {} of {}, saved; --resume goes on", state_.step, total_steps_);
    return outcome(false);
  }
  score({{"trained", weights_}});
  const auto all = of_all_ranks(weights_);
  if (ranks_.leads()) {
    write_adapter_file(options_.out, adapter_config(), stored_views(named_weights(depths_, all)));
    if (!data_.held_out.empty())
      spdlog::info("on {} held-out samples:\n{}", data_.held_out.size(),
                   report_->evaluation_text(state_));
  }
  return outcome(true);
}

}  // namespace dex
