// Evaluation between the steps: how well exits answer on the run's held-out text.
#pragma once
#include <span>

#include "train/loop/learner.h"
#include "train/loop/run_directory.h"
#include "train/loop/train_setup.h"
#include "train/reports/evaluation.h"
#include "train/teacher/teacher_states.h"

namespace dex {

// The scores of all sets, on the leading rank, which has them in the learner's state, too, and
// offers the learner's adapters as the best ones. All ranks call it. Error(temporary) when the run
// is asked to stop meanwhile.
NamedScores evaluate_held_out(const TrainSetup& setup, const TeacherStates& source,
                              std::span<const ExitSet> sets, Learner& learner,
                              RunDirectory& directory);

}  // namespace dex
