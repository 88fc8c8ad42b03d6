// What a training run works with, fixed from its start.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoints/adapter_file.h"
#include "common/model/model.h"
#include "train/loop/batch.h"
#include "train/loop/sample_order.h"
#include "train/loop/train_options.h"
#include "train/loop/training_data.h"
#include "train/ranks/flat_adapters.h"
#include "train/ranks/rank_messages.h"

namespace dex {

struct TrainSetup {
  // Error(usage) when there is nothing to train, or nothing to train on.
  TrainSetup(const TrainOptions& options, const Model& model, TrainingData data,
             std::function<bool()> stop_wanted, RankMessages ranks);
  TrainSetup(const TrainSetup&) = delete;

  ExitSizes sizes(std::int64_t exits) const;
  AdapterConfig adapter_config() const;
  Batch batch(std::int64_t step) const;  // by another thread in training

  TrainOptions options;
  const Model& model;
  TrainingData data;
  std::function<bool()> stop_wanted;
  RankMessages ranks;
  std::vector<int> depths, own_depths;  // the non-final ones, of the model and of this rank
  SampleOrder order;
  std::int64_t total_steps;
  nlohmann::json identity;  // what a run that goes on after a checkpoint has in common with it
  Digests model_tensors;    // of all ranks' shares, from require_same_run() on
};

// All ranks call it. Error(usage) on all of them when one was asked for another run or reads other
// weights.
void require_same_run(TrainSetup& setup);

}  // namespace dex
