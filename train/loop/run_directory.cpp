#include "train/loop/run_directory.h"

#include <fmt/ranges.h>

#include "checkpoints/checkpoint.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "train/ranks/gather_adapters.h"

namespace dex {

std::string RunDirectory::newest() const {
  const CheckpointSearch search = newest_checkpoint(checkpoints());
  for (const std::string& reason : search.passed_over)
    spdlog::warn("checkpoint passed over: {}", reason);
  require(setup_.options.resume || (!search.step && search.passed_over.empty()), ExitCode::usage,
          "{}: holds checkpoints of an earlier run; --resume goes on with it, another --out or "
          "--restart starts a new run",
          checkpoints().string());
  require(
      search.step || search.passed_over.empty(), ExitCode::io,
      "{}: no checkpoint is whole, so there is nothing to go on from; --restart in the place of "
      "--resume removes them and starts anew: {}",
      checkpoints().string(), fmt::join(search.passed_over, "; "));
  return search.step ? search.dir.filename().string() : "";
}

std::string RunDirectory::open() {
  std::string found;
  if (setup_.ranks.leads()) {
    make_directory(setup_.options.out);
    // first: another run may be writing there still
    lock_.emplace(setup_.options.out, !setup_.options.allow_unlocked);
    if (setup_.options.restart) clear();
    found = newest();
  }
  return setup_.ranks.from_leader(Tag::agreement, found);
}

// The checkpoints go all at once: a run that is killed meanwhile leaves none or all.
void RunDirectory::clear() {
  namespace fs = std::filesystem;
  const fs::path& out = setup_.options.out;
  const fs::path doomed = out / ".checkpoints.doomed";
  const bool is_run = fs::exists(out / "adapter_config.json") ||
                      fs::exists(out / "metrics.jsonl") || fs::exists(doomed);
  require(is_run || fs::is_empty(out), ExitCode::usage,
          "{}: holds no training run that --restart could remove; wanted a run's directory or an "
          "empty one",
          out.string());
  try {
    for (const char* name : {"adapter_model.safetensors", "adapter_config.json", "best",
                             "metrics.jsonl", "tensorboard"})
      fs::remove_all(out / name);
    fs::remove_all(doomed);
    if (!fs::exists(checkpoints())) return;
    rename_durably(checkpoints(), doomed);
    fs::remove_all(doomed);
  } catch (const fs::filesystem_error& error) {
    fail(ExitCode::io, "{}: {}", out.string(), error.what());
  }
  spdlog::info("{}: the earlier run is removed", out.string());
}

void RunDirectory::load(const std::string& checkpoint, Learner& learner) {
  const auto dir = checkpoints() / checkpoint;
  require(std::filesystem::is_directory(dir), ExitCode::usage,
          "{}: is not here, but rank 0 sees it; all ranks need the same --out", dir.string());
  learner.state = load_state(dir, setup_.identity, setup_.depths, setup_.own_depths,
                             learner.weights, *learner.optimizer);
  saved_step_ = learner.state.step;
  spdlog::info("going on after step {} of {}, from {}", learner.state.step, setup_.total_steps,
               dir.string());
}

void RunDirectory::open_best(const Learner& learner, bool fresh) {
  best_.emplace(setup_.options.out / "best", fresh);
  if (!fresh)
    prune_checkpoints(checkpoints(), learner.state.step, setup_.options.keep, best_->step());
}

void RunDirectory::save(const Learner& learner) {
  if (saved_step_ == learner.state.step) return;
  const TrainTensors all{.weights = gather(learner.weights),
                         .first = gather(learner.optimizer->first()),
                         .second = gather(learner.optimizer->second())};
  if (setup_.ranks.leads())
    save_state(checkpoints(), setup_.options.keep, learner.state, setup_.identity, setup_.depths,
               all, learner.optimizer->steps(), best_->step());
  saved_step_ = learner.state.step;
}

void RunDirectory::wait_for_files() { setup_.ranks.from_leader(Tag::agreement); }

std::vector<AdapterWeights> RunDirectory::gather(const std::vector<AdapterWeights>& own) {
  return gather_adapters(setup_.ranks, own, setup_.sizes(1));
}

void RunDirectory::offer_best(std::int64_t step, const ExitScores& scores,
                              const std::vector<AdapterWeights>& all) {
  best_->offer(step, scores, setup_.adapter_config(),
               stored_views(named_weights(setup_.depths, all)));
}

void RunDirectory::write_adapters(const std::vector<AdapterWeights>& all) {
  write_adapter_file(setup_.options.out, setup_.adapter_config(),
                     stored_views(named_weights(setup_.depths, all)));
}

}  // namespace dex
