// What the steps of a run change on this rank, and what its checkpoints keep.
#pragma once
#include <optional>
#include <vector>

#include "common/model/adapter.h"
#include "train/loop/train_state.h"
#include "train/loss/adamw.h"

namespace dex {

struct Learner {
  Learner() = default;
  Learner(const Learner&) = delete;  // the optimizer refers to the weights

  TrainState state;
  std::vector<AdapterWeights> weights;  // of the exits of this rank
  std::optional<AdamW> optimizer;       // none before the run has started
};

}  // namespace dex
