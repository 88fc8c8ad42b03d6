// Where the steps of a run begin.
#pragma once
#include "train/loop/learner.h"
#include "train/loop/run_directory.h"
#include "train/loop/train_setup.h"
#include "train/teacher/teacher_states.h"

namespace dex {

// The learner of the newest checkpoint in `directory`, or one at step 0 with the start that the
// options name. True when it is the latter. All ranks call it.
bool start_run(TrainSetup& setup, const TeacherStates& source, RunDirectory& directory,
               Learner& learner);

}  // namespace dex
