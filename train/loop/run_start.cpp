#include "train/loop/run_start.h"

#include <functional>

#include "train/loop/pass_progress.h"
#include "train/loss/ridge_over_ranks.h"

namespace dex {
namespace {

std::vector<AdapterWeights> closed_form_start(const TrainSetup& setup,
                                              const TeacherStates& source) {
  PassProgress progress(setup, "closed-form start", "the closed-form start");
  const TrainOptions& o = setup.options;
  return ridge_over_ranks(source, setup.order.first_passes(o.ridge_tokens, o.micro_batch),
                          std::ref(progress));
}

std::vector<AdapterWeights> paper_start(const TrainSetup& setup) {
  std::vector<AdapterWeights> weights;
  for (int depth : setup.own_depths)
    weights.push_back(AdapterWeights::paper_start(setup.model.config, setup.sizes(1).width,
                                                  setup.options.seed, depth));
  return weights;
}

std::vector<AdapterWeights> zeros(const TrainSetup& setup) {
  const ExitSizes own = setup.sizes(std::int64_t(setup.own_depths.size()));
  return adapters_of(at::zeros({own.size()}), own);
}

}  // namespace

bool start_run(TrainSetup& setup, const TeacherStates& source, RunDirectory& directory,
               Learner& learner) {
  const std::string checkpoint = directory.open();
  const bool fresh = checkpoint.empty();
  learner.weights = on_device(!fresh                          ? zeros(setup)
                              : setup.options.init == "ridge" ? closed_form_start(setup, source)
                                                              : paper_start(setup),
                              setup.model.device);
  learner.optimizer.emplace(learner.weights, setup.own_depths, setup.options.weight_decay);
  if (!fresh) directory.load(checkpoint, learner);
  return fresh;
}

}  // namespace dex
