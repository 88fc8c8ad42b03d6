#include "train/loop/held_out.h"

#include <functional>

#include "train/loop/pass_progress.h"

namespace dex {

NamedScores evaluate_held_out(const TrainSetup& setup, const TeacherStates& source,
                              std::span<const ExitSet> sets, Learner& learner,
                              RunDirectory& directory) {
  PassProgress progress(setup, "held-out text", "the evaluation");
  const auto scores =
      evaluate(source, setup.data.held_out, sets, setup.options.micro_batch, std::ref(progress));
  const auto all = directory.gather(learner.weights);
  NamedScores named;
  for (std::size_t i = 0; setup.ranks.leads() && i < sets.size(); ++i) {
    learner.state.evaluation[sets[i].name] = to_json(scores[i]);
    if (!sets[i].adapters.empty()) directory.offer_best(learner.state.step, scores[i], all);
    named.emplace_back(sets[i].name, scores[i]);
  }
  return named;
}

}  // namespace dex
