#include "train/train_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "checkpoints/adapter_file.h"
#include "checkpoints/checkpoint.h"
#include "common/error.h"
#include "common/file.h"
#include "common/log.h"
#include "common/progress.h"
#include "data/batch_plan.h"
#include "train/adapter_gradient.h"
#include "train/flops.h"
#include "train/rank_exchange.h"
#include "train/replica_sum.h"
#include "train/ridge_over_ranks.h"

namespace dex {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<int> inner_depths(const DepthSet& depths) {
  require(depths.num_stages() >= 2, ExitCode::usage,
          "--depths names no depth before the last layer, {}, so there is nothing to train",
          depths.num_layers());
  return {depths.depths().begin(), depths.depths().end() - 1};
}

double square_sum(const AdapterWeights& gradient) {
  double sum = 0;
  for (const auto& [name, tensor] : gradient.named()) sum += tensor.square().sum(at::kDouble).item<double>();
  return sum;
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
          {"resume", o.resume},
          {"deterministic", o.deterministic},
          {"out", o.out.string()}};
}

constexpr double kLargestNorm = 1e18;  // of a gradient; a larger one would overflow the second moments

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
      source_(model, ranks_),
      feed_(
          source_, ranks_, [this](std::int64_t step) { return samples_of(step); }, options.batch_size,
          options.micro_batch, [this] { return peer_stops_ || stop_wanted_(); }),
      identity_(identity_of(options)),
      speeds_(std::move(speeds)),
      live_(depths_, speeds_.gemm_peak * ranks_.layout().world) {
  require(ranks_.alone() || options.on_nan == "stop", ExitCode::usage,
          "--on-nan {} is for one rank, and there are {}", options.on_nan, ranks_.layout().world);
  if (model.head) loss_.emplace(*model.head, options.tau);
  require(data_.size > 0, ExitCode::usage, "the data set has no sample to train on");
  epoch_steps_ =
      static_cast<std::int64_t>(steps_per_epoch(static_cast<std::uint64_t>(options.batch_size), data_.size));
  total_steps_ = options.steps > 0 ? options.steps : options.epochs * epoch_steps_;
  schedule_ = {.total_steps = total_steps_, .peak = options.learning_rate, .warmup_share = options.warmup};
  identity_["depths"] = model.depths.text();
  identity_["model_fingerprint"] = model.fingerprint;
  identity_["data_digest"] = data_.digest;
  nlohmann::json asked = {
      {"version", DEX_VERSION}, {"world_size", ranks_.layout().world}, {"stages", ranks_.layout().pipeline}};
  asked.update(identity_);
  asked.update(control_of(options_));
  agree(ranks_, asked);
}

std::vector<Sample> TrainLoop::samples_of(std::int64_t step) const {
  std::vector<Sample> samples;
  const auto epoch = static_cast<std::uint64_t>(step / epoch_steps_),
             in_epoch = static_cast<std::uint64_t>(step % epoch_steps_);
  for (std::uint64_t index : batch_indices(options_.seed, epoch, in_epoch,
                                           static_cast<std::uint64_t>(options_.batch_size), data_.size))
    samples.push_back(data_.sample(index));
  return samples;
}

std::vector<std::vector<Sample>> TrainLoop::ridge_samples() const {
  std::vector<std::vector<Sample>> passes;
  std::int64_t tokens = 0;
  for (std::int64_t step = 0; step < epoch_steps_ && tokens < options_.ridge_tokens; ++step)
    for (Sample& sample : samples_of(step)) {
      if (tokens >= options_.ridge_tokens) break;
      tokens += pass_tokens(sample);
      if (passes.empty() || passes.back().size() == static_cast<std::size_t>(options_.micro_batch))
        passes.emplace_back();
      passes.back().push_back(std::move(sample));
    }
  return passes;
}

std::vector<AdapterWeights> TrainLoop::start() {
  if (options_.init == "ridge") {
    std::optional<Progress> progress;
    return ridge_over_ranks(ranks_, source_, ridge_samples(), [&](std::int64_t done, std::int64_t of) {
      if (stop_wanted_()) leave_for_now("the closed-form start");
      if (!progress && ranks_.leads()) progress.emplace("closed-form start", of, "passes");
      if (progress) progress->update(done);
    });
  }
  std::vector<AdapterWeights> weights;
  for (int depth : own_depths_)
    weights.push_back(AdapterWeights::paper_start(model_.config, width(), options_.seed, depth));
  return weights;
}

void TrainLoop::prepare() {
  if (optimizer_) return;
  const auto root = options_.out / "checkpoints";
  std::string found;  // the leading rank looks for all
  if (ranks_.leads()) {
    const CheckpointSearch search = newest_checkpoint(root);
    for (const std::string& reason : search.passed_over) spdlog::warn("checkpoint passed over: {}", reason);
    require(options_.resume || (!search.step && search.passed_over.empty()), ExitCode::usage,
            "{}: holds checkpoints of an earlier run; --resume goes on with it, another --out starts anew",
            root.string());
    make_directory(options_.out);
    if (search.step) found = search.dir.filename().string();
    for (int rank = 1; rank < ranks_.layout().world; ++rank) ranks_.send(Kind::agree, found, rank);
  } else {
    found = ranks_.receive_text(Kind::agree, 0);
  }
  weights_ = found.empty() ? start() : exits_of(at::zeros({own_sizes().size()}), own_sizes());
  optimizer_.emplace(weights_, own_depths_, options_.weight_decay);
  if (!found.empty()) {
    require(std::filesystem::is_directory(root / found), ExitCode::usage,
            "{}: is not here, but rank 0 sees it; all ranks need the same --out", (root / found).string());
    state_ = load_state(root / found, identity_, depths_, own_depths_, weights_, *optimizer_);
    saved_step_ = state_.step;
    spdlog::info("going on after step {} of {}, from {}", state_.step, total_steps_, (root / found).string());
  }
  if (!ranks_.leads()) return;
  metrics_.emplace(options_.out / "metrics.jsonl", found.empty() ? -1 : state_.step);
  best_.emplace(options_.out / "best", /*anew=*/found.empty());
  if (!found.empty()) prune_checkpoints(root, state_.step, options_.keep, best_->step());
}

std::optional<StepReport> TrainLoop::step(std::int64_t index) {
  const auto start = Clock::now();
  ranks_.at(index);
  const StepWork* work = feed_.enter();
  if (!work) return std::nullopt;
  StepReport report{.step = index + 1,
                    .rows = work->rows,
                    .tokens = work->micro_batches > 0 ? work->tokens : 0,
                    .micro_batches = work->micro_batches,
                    .learning_rate = schedule_.rate(index)};
  report.own.assign(1 + own_depths_.size(), 0);
  OrderedSum gradient;
  for (std::int64_t i = work->mine.begin; i < work->mine.end; ++i) {
    const auto hidden = feed_.next();
    if (!hidden) return std::nullopt;
    if (own_depths_.empty()) continue;
    at::Tensor part = at::zeros({own_sizes().size()});
    auto views = exit_views(part, own_sizes());
    add_own(report, loss_->add_gradients(hidden->h_RD, hidden->final_RD, weights_, report.rows, views,
                                         static_cast<std::int64_t>(depths_.size())));
    gradient.add(i, std::move(part));
  }
  if (!own_depths_.empty() && work->micro_batches > 0)
    update(report, replica_sum(ranks_, std::move(gradient), work->micro_batches, own_sizes().size()));
  if (ranks_.leads() && work->micro_batches > 0)
    report.flops = step_flops(model_.config, static_cast<int>(depths_.size()), width(), model_.head->vocab(), work->samples);
  if (!ranks_.alone()) report.own[0] = stop_wanted_() ? 1 : 0;
  if (!ranks_.leads()) send_own(ranks_, report);
  feed_.leave();
  report.seconds = seconds_since(start);
  return report;
}

void TrainLoop::update(StepReport& report, const at::Tensor& gradient) {
  const auto gradients = exit_views(gradient, own_sizes());
  double squares = 0;
  for (std::size_t k = 0; k < gradients.size(); ++k) squares += report.own[1 + k] = square_sum(gradients[k]);
  const double sum = std::accumulate(report.own.begin(), report.own.end(), 0.0);  // a NaN in any of them is one in the sum
  report.skipped = !std::isfinite(sum) || squares > kLargestNorm * kLargestNorm;
  if (!report.skipped) return optimizer_->step(gradients, report.learning_rate);
  require(ranks_.alone(), ExitCode::usage,
          "step {}: the losses and squared gradients add up to {}; the last checkpoint stands; a lower --lr or "
          "--dtype f32 may help", report.step, sum);
}

void TrainLoop::pass_over(const StepReport& report) {
  StepReport r = report;
  complete(r, ranks_);
  const bool skip = options_.on_nan == "skip";
  if (!skip || state_.skipped_in_row + 1 >= options_.nan_limit) {
    save();
    fail(ExitCode::usage,
         "step {}: the loss is {} and the gradient's norm {}{}; the steps before it are saved; a lower --lr or "
         "--dtype f32 may help", r.step, r.mean_loss, r.gradient_norm,
         skip ? fmt::format(", after {} skipped in a row", state_.skipped_in_row) : "");
  }
  ++state_.skipped;
  ++state_.skipped_in_row;
  spdlog::warn("step {} is skipped: the loss is {} and the gradient's norm {}", r.step, r.mean_loss, r.gradient_norm);
}

void TrainLoop::settle(std::size_t open) {
  if (!ranks_.leads()) return;
  for (; open_.size() > open; open_.pop_front()) {
    StepReport& r = open_.front();
    complete(r, ranks_);
    record(r);
    peer_stops_ = peer_stops_ || r.stop;
    if (progress_)
      progress_->update(r.step - first_step_,
                        live_.note({.loss = r.loss, .agreement = r.agreement, .tokens = static_cast<double>(r.tokens),
                                    .flops = r.flops, .seconds = r.seconds, .skipped = r.skipped}));
    if (!r.skipped) last_ = r;
  }
}

void TrainLoop::record(const StepReport& report) {
  json line = to_json(report, depths_);
  line["epoch"] = (report.step - 1) / epoch_steps_;
  if (speeds_.gemm_peak > 0) line["mfu"] = live_.mfu({.flops = report.flops, .seconds = report.seconds});
  metrics_->write(line);
}

std::vector<AdapterWeights> TrainLoop::of_all_ranks(const std::vector<AdapterWeights>& own) {
  return exits_of_all(ranks_, own, sizes(1));
}

void TrainLoop::save() {
  if (saved_step_ == state_.step) return;
  settle(0);
  const TrainTensors all{.weights = of_all_ranks(weights_),
                         .first = of_all_ranks(optimizer_->first()),
                         .second = of_all_ranks(optimizer_->second())};
  if (ranks_.leads())
    save_state(options_.out / "checkpoints", options_.keep, state_, identity_, depths_, all,
               optimizer_->steps(), best_->step());
  saved_step_ = state_.step;
}

// What was evaluated is saved, so that the best adapters have their checkpoint.
void TrainLoop::score(const std::vector<ExitSet>& sets) {
  if (data_.held_out.empty()) return;
  ranks_.leads() ? score_here(sets) : serve_score();
  save();
}

// The leading rank reads out for all; the others of its replica bring it the hidden rows of their depths.
void TrainLoop::score_here(const std::vector<ExitSet>& sets) {
  Progress progress("held-out text", static_cast<std::int64_t>(data_.held_out.size()), "samples");
  const auto scores = evaluate(source_, data_.held_out, sets, options_.micro_batch, [&](std::int64_t done) {
    if (stop_wanted_()) leave_for_now("the evaluation");
    ranks_.keep_alive();
    progress.update(done);
  });
  json line = {{"step", state_.step}, {"evaluation", json::object()}};
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const std::string& name = sets[i].name;
    state_.evaluation[name] = line["evaluation"][name] = to_json(scores[i]);
    if (speeds_.rounds.known()) line["forecast"][name] = forecast_json(speeds_.rounds, scores[i]);
    if (sets[i].adapters.empty()) continue;
    best_->offer(state_.step, scores[i], adapter_config(), stored_views(named_weights(depths_, sets[i].adapters)));
  }
  metrics_->write(line);
}

void TrainLoop::serve_score() {
  const std::span<const Sample> samples = data_.held_out;
  const auto micro_batch = static_cast<std::size_t>(options_.micro_batch);
  for (std::size_t begin = 0; begin < samples.size(); begin += micro_batch) {
    if (ranks_.layout().replica() == 0)
      source_.all_rows(samples.subspan(begin, std::min(micro_batch, samples.size() - begin)));
    ranks_.keep_alive();
  }
}

// No pass is begun past `end`: the evaluation there needs the ranks for itself.
bool TrainLoop::train_until(std::int64_t end) {
  feed_.start(state_.step, end);
  while (state_.step < end) {
    auto report = step(state_.step);
    if (!report) return false;
    if (report->skipped) pass_over(*report);
    else state_.skipped_in_row = 0;
    ++state_.step;
    state_.tokens += report->tokens;
    if (ranks_.leads()) open_.push_back(std::move(*report));
    settle(ranks_.alone() ? 0 : 1);
    if (options_.save_every > 0 && state_.step % options_.save_every == 0 && state_.step < end) save();
  }
  return true;
}

bool TrainLoop::train() {
  const std::int64_t last =
      options_.stop_after > 0 ? std::min(options_.stop_after, total_steps_) : total_steps_;
  first_step_ = state_.step;
  if (ranks_.leads()) progress_.emplace("training", std::max<std::int64_t>(0, last - first_step_), "steps");
  bool going = true;
  while (going && state_.step < last) {
    const std::int64_t every = options_.eval_every;
    going = train_until(every > 0 ? std::min(last, (state_.step / every + 1) * every) : last);
    settle(0);
    if (going && every > 0 && state_.step % every == 0 && state_.step < total_steps_)
      score({{"trained", of_all_ranks(weights_)}});
    if (going && options_.save_every > 0 && state_.step % options_.save_every == 0) save();
  }
  save();
  progress_.reset();
  return state_.step == total_steps_;
}

AdapterConfig TrainLoop::adapter_config() const {
  return {.depths = depths_,
          .hidden_size = model_.config.hidden_size,
          .width = width(),
          .model_fingerprint = model_.fingerprint,
          .data_digest = data_.digest,
          .tau = options_.tau};
}

void TrainLoop::write_adapters(const std::vector<AdapterWeights>& all) const {
  write_adapter_file(options_.out, adapter_config(), stored_views(named_weights(depths_, all)));
}

std::vector<std::pair<std::string, ExitScores>> TrainLoop::score_lines() const {
  std::vector<std::pair<std::string, ExitScores>> lines;
  for (const char* name : {"none", "start", "trained"})
    if (state_.evaluation.contains(name)) lines.emplace_back(name, scores_of(state_.evaluation[name]));
  return lines;
}

json TrainLoop::summary(bool finished, double seconds, std::int64_t tokens_before) const {
  const std::int64_t parameters = static_cast<std::int64_t>(depths_.size()) * sizes(1).parameters();
  const auto tokens = static_cast<double>(state_.tokens - tokens_before);
  json line = {{"command", "train"},
               {"status", finished ? "finished" : "stopped"},
               {"out", options_.out.string()},
               {"depths", depths_},
               {"step", state_.step},
               {"steps", total_steps_},
               {"parameters", parameters},
               {"tokens", state_.tokens},
               {"training_seconds", seconds},
               {"tokens_per_second", seconds > 0 ? tokens / seconds : 0.0},
               {"evaluation", state_.evaluation}};
  if (state_.skipped > 0) line["skipped"] = state_.skipped;
  if (best_ && best_->step()) line["best_step"] = *best_->step();
  for (const auto& [name, scores] : score_lines())
    if (speeds_.rounds.known()) line["forecast"][name] = forecast_json(speeds_.rounds, scores);
  if (last_) line["loss"] = last_->mean_loss;
  return line;
}

TrainOutcome TrainLoop::run() {
  prepare();
  if (state_.evaluation.empty()) score({{"none", {}}, {"start", of_all_ranks(weights_)}});
  const std::int64_t tokens_before = state_.tokens;
  const auto start = Clock::now();
  const bool finished = train();
  const double seconds = seconds_since(start);
  if (!finished) {
    spdlog::info("stopped after step {} of {}, saved; --resume goes on", state_.step, total_steps_);
    return {false, summary(false, seconds, tokens_before)};
  }
  const auto all = of_all_ranks(weights_);
  score({{"trained", all}});
  if (ranks_.leads()) {
    write_adapters(all);
    if (!data_.held_out.empty())
      spdlog::info("on {} held-out samples:\n{}{}", data_.held_out.size(), score_table(score_lines(), depths_),
                   forecast_table(speeds_.rounds, score_lines()));
  }
  return {true, summary(true, seconds, tokens_before)};
}

}  // namespace dex
