#include "train/train_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "checkpoints/adapter_file.h"
#include "checkpoints/checkpoint.h"
#include "common/error.h"
#include "common/file.h"
#include "common/log.h"
#include "common/progress.h"
#include "data/batch_plan.h"
#include "train/adapter_gradient.h"
#include "train/ridge_start.h"

namespace dex {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<int> inner_depths(const DepthSet& depths) {
  require(depths.num_stages() >= 2, ExitCode::usage, "--depths names no depth before the last layer, {}, so there is nothing to train",
          depths.num_layers());
  return {depths.depths().begin(), depths.depths().end() - 1};
}

double norm_of(const std::vector<AdapterWeights>& gradients) {
  double sum = 0;
  for (const AdapterWeights& g : gradients)
    for (const auto& [name, tensor] : g.named()) sum += tensor.square().sum(at::kDouble).item<double>();
  return std::sqrt(sum);
}

json by_depth(const std::vector<int>& depths, const std::vector<double>& values) {
  json object = json::object();
  for (std::size_t k = 0; k < depths.size(); ++k) object[std::to_string(depths[k])] = values[k];
  return object;
}

[[noreturn]] void leave_for_now(const char* what) { fail(ExitCode::temporary, "asked to stop during {}; --resume goes on", what); }

}  // namespace

TrainLoop::TrainLoop(const TrainOptions& options, const Model& model, TrainingData data, std::function<bool()> stop_wanted)
    : options_(options), model_(model), data_(std::move(data)), stop_wanted_(std::move(stop_wanted)),
      depths_(inner_depths(model.depths)), source_(model), loss_(*model.head, options.tau), identity_(identity_of(options)) {
  require(data_.size > 0, ExitCode::usage, "the data set has no sample to train on");
  epoch_steps_ = static_cast<std::int64_t>(steps_per_epoch(static_cast<std::uint64_t>(options.batch_size), data_.size));
  total_steps_ = options.steps > 0 ? options.steps : options.epochs * epoch_steps_;
  schedule_ = {.total_steps = total_steps_, .peak = options.learning_rate, .warmup_share = options.warmup};
  identity_["depths"] = model.depths.text();
  identity_["model_fingerprint"] = model.fingerprint;
  identity_["data_digest"] = data_.digest;
}

std::vector<Sample> TrainLoop::samples_of(std::int64_t step) const {
  std::vector<Sample> samples;
  const auto epoch = static_cast<std::uint64_t>(step / epoch_steps_), in_epoch = static_cast<std::uint64_t>(step % epoch_steps_);
  for (std::uint64_t index : batch_indices(options_.seed, epoch, in_epoch, static_cast<std::uint64_t>(options_.batch_size), data_.size))
    samples.push_back(data_.sample(index));
  return samples;
}

std::vector<AdapterWeights> TrainLoop::ridge_start() const {
  RidgeStart ridge(model_.config, static_cast<int>(depths_.size()));
  Progress progress("closed-form start", options_.ridge_tokens, "tokens");
  std::int64_t tokens = 0;
  for (std::int64_t step = 0; step < epoch_steps_ && tokens < options_.ridge_tokens; ++step)
    for (const Sample& sample : samples_of(step)) {
      if (stop_wanted_()) leave_for_now("the closed-form start");
      if (tokens >= options_.ridge_tokens) break;
      const HiddenRows hidden = source_.rows({&sample, 1});
      ridge.add(hidden.h_RD, hidden.final_RD);
      tokens += hidden.tokens;
      progress.update(std::min(tokens, options_.ridge_tokens));
    }
  return ridge.solve();
}

std::vector<AdapterWeights> TrainLoop::start() const {
  if (options_.init == "ridge") return ridge_start();
  const std::int64_t width = options_.width > 0 ? options_.width : 2 * model_.config.hidden_size;
  std::vector<AdapterWeights> weights;
  for (int depth : depths_) weights.push_back(AdapterWeights::paper_start(model_.config, width, options_.seed, depth));
  return weights;
}

void TrainLoop::start_or_resume() {
  const auto root = options_.out / "checkpoints";
  const CheckpointSearch found = newest_checkpoint(root);
  for (const std::string& reason : found.passed_over) spdlog::warn("checkpoint passed over: {}", reason);
  require(options_.resume || (!found.step && found.passed_over.empty()), ExitCode::usage,
          "{}: holds checkpoints of an earlier run; --resume goes on with it, another --out starts anew", root.string());
  make_directory(options_.out);
  if (found.step) {
    const std::int64_t width = options_.width > 0 ? options_.width : 2 * model_.config.hidden_size;
    for (std::size_t k = 0; k < depths_.size(); ++k) weights_.push_back(AdapterWeights::paper_start(model_.config, width, 0, 0));
  } else {
    weights_ = start();
  }
  optimizer_.emplace(weights_, depths_, options_.weight_decay);
  for (const AdapterWeights& w : weights_) gradients_.push_back(zeros_like(w));
  if (found.step) {
    state_ = load_state(found.dir, identity_, depths_, weights_, *optimizer_);
    saved_step_ = state_.step;
    prune_checkpoints(root, state_.step, options_.keep);
    spdlog::info("going on after step {} of {}, from {}", state_.step, total_steps_, found.dir.string());
  }
  metrics_.emplace(options_.out / "metrics.jsonl", state_.step);
}

std::optional<TrainLoop::StepReport> TrainLoop::step(std::int64_t index) {
  const auto start = Clock::now();
  const std::vector<Sample> samples = samples_of(index);
  StepReport report{.learning_rate = schedule_.rate(index)};
  for (const Sample& sample : samples) report.rows += loss_rows(sample);
  for (const AdapterWeights& g : gradients_)
    for (const auto& [name, tensor] : g.named()) tensor.zero_();
  report.loss.resize(depths_.size());
  report.agreement.resize(depths_.size());
  if (report.rows == 0) return report;  // no target: no loss, no optimizer step

  const auto micro_batch = static_cast<std::size_t>(options_.micro_batch);
  for (std::size_t begin = 0; begin < samples.size(); begin += micro_batch) {
    if (stop_wanted_()) return std::nullopt;
    const HiddenRows hidden = source_.rows(std::span(samples).subspan(begin, std::min(micro_batch, samples.size() - begin)));
    const DistillResult part = loss_.add_gradients(hidden.h_RD, hidden.final_RD, weights_, report.rows, gradients_);
    for (std::size_t k = 0; k < depths_.size(); ++k) {
      report.loss[k] += part.kl[k] / static_cast<double>(report.rows);
      report.agreement[k] += static_cast<double>(part.agreements[k]) / static_cast<double>(report.rows);
      report.mean_loss += part.kl[k] / static_cast<double>(report.rows) / static_cast<double>(depths_.size());
    }
    report.tokens += hidden.tokens;
  }
  report.gradient_norm = norm_of(gradients_);
  if (!std::isfinite(report.mean_loss) || !std::isfinite(report.gradient_norm)) {
    save();
    fail(ExitCode::usage, "step {}: the loss is {} and the gradient's norm {}; the steps before it are saved; a lower --lr or --dtype f32 may help",
         index + 1, report.mean_loss, report.gradient_norm);
  }
  optimizer_->step(gradients_, report.learning_rate);
  report.seconds = seconds_since(start);
  return report;
}

void TrainLoop::record(const StepReport& r) {
  metrics_->write({{"step", state_.step}, {"epoch", (state_.step - 1) / epoch_steps_}, {"learning_rate", r.learning_rate}, {"rows", r.rows},
                   {"tokens", r.tokens}, {"loss", r.mean_loss}, {"loss_by_depth", by_depth(depths_, r.loss)},
                   {"agreement", by_depth(depths_, r.agreement)}, {"gradient_norm", r.gradient_norm}, {"seconds", r.seconds}});
}

void TrainLoop::save() {
  if (saved_step_ == state_.step) return;
  save_state(options_.out / "checkpoints", options_.keep, state_, identity_, depths_, weights_, *optimizer_);
  saved_step_ = state_.step;
}

void TrainLoop::score(const std::vector<ExitSet>& sets) {
  if (data_.held_out.empty()) return;
  Progress progress("held-out text", static_cast<std::int64_t>(data_.held_out.size()), "samples");
  const auto scores = evaluate(model_, data_.held_out, sets, options_.micro_batch, [&](std::int64_t done) {
    if (stop_wanted_()) leave_for_now("the evaluation");
    progress.update(done);
  });
  json line = {{"step", state_.step}, {"evaluation", json::object()}};
  for (std::size_t i = 0; i < sets.size(); ++i) state_.evaluation[sets[i].name] = line["evaluation"][sets[i].name] = to_json(scores[i]);
  metrics_->write(line);
}

bool TrainLoop::train() {
  const std::int64_t first = state_.step, last = options_.stop_after > 0 ? std::min(options_.stop_after, total_steps_) : total_steps_;
  Progress progress("training", std::max<std::int64_t>(0, last - first), "steps");
  const auto start = Clock::now();
  std::int64_t tokens = 0;
  while (state_.step < last) {
    const auto report = stop_wanted_() ? std::nullopt : step(state_.step);
    if (!report) break;
    last_ = report;
    ++state_.step;
    state_.tokens += report->tokens;
    tokens += report->tokens;
    record(*report);
    std::string note = fmt::format("step {}  loss {:.4f}", state_.step, report->mean_loss);
    for (std::size_t k = 0; k < depths_.size(); ++k) note += fmt::format("  @{} {:.3f}", depths_[k], report->loss[k]);
    progress.update(state_.step - first, note + fmt::format("  {:.0f} tok/s", static_cast<double>(tokens) / seconds_since(start)));
    if (options_.eval_every > 0 && state_.step % options_.eval_every == 0 && state_.step < total_steps_) score({{"trained", weights_}});
    if (options_.save_every > 0 && state_.step % options_.save_every == 0) save();
  }
  save();
  return state_.step == total_steps_;
}

void TrainLoop::write_adapters() const {
  const AdapterConfig config{.depths = depths_, .hidden_size = model_.config.hidden_size, .width = weights_.front().up.size(0),
                             .model_fingerprint = model_.fingerprint, .data_digest = data_.digest, .tau = options_.tau};
  write_adapter_file(options_.out, config, stored_views(named_weights(depths_, weights_)));
}

std::string TrainLoop::table() const {
  std::vector<std::pair<std::string, ExitScores>> lines;
  for (const char* name : {"none", "start", "trained"})
    if (state_.evaluation.contains(name)) lines.emplace_back(name, scores_of(state_.evaluation[name]));
  return score_table(lines, depths_);
}

json TrainLoop::summary(bool finished, double seconds, std::int64_t tokens_before) const {
  std::int64_t parameters = 0;
  for (const AdapterWeights& w : weights_) parameters += w.parameters();
  const auto tokens = static_cast<double>(state_.tokens - tokens_before);
  json line = {{"command", "train"}, {"status", finished ? "finished" : "stopped"}, {"out", options_.out.string()}, {"depths", depths_},
               {"step", state_.step}, {"steps", total_steps_}, {"parameters", parameters}, {"tokens", state_.tokens},
               {"training_seconds", seconds}, {"tokens_per_second", seconds > 0 ? tokens / seconds : 0.0}, {"evaluation", state_.evaluation}};
  if (last_) line["loss"] = last_->mean_loss;
  return line;
}

TrainOutcome TrainLoop::run() {
  start_or_resume();
  if (state_.evaluation.empty()) score({{"none", {}}, {"start", weights_}});
  const std::int64_t tokens_before = state_.tokens;
  const auto start = Clock::now();
  const bool finished = train();
  const double seconds = seconds_since(start);
  if (!finished) {
    spdlog::info("stopped after step {} of {}, saved; --resume goes on", state_.step, total_steps_);
    return {false, summary(false, seconds, tokens_before)};
  }
  score({{"trained", weights_}});
  write_adapters();
  if (!data_.held_out.empty()) spdlog::info("on {} held-out samples:\n{}", data_.held_out.size(), table());
  return {true, summary(true, seconds, tokens_before)};
}

}  // namespace dex
