// All that a training run must remember to go on as if it had not stopped. No rank, no world size.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "common/model/adapter.h"
#include "train/loss/adamw.h"

namespace dex {

struct TrainState {
  std::int64_t step = 0;    // finished ones
  std::int64_t tokens = 0;  // that went through the model so far
  // steps without an update, their loss or gradient being no number
  std::int64_t skipped = 0, skipped_in_row = 0;
  // scores taken so far, by name of the exits
  nlohmann::json evaluation = nlohmann::json::object();
};

struct TrainTensors {                                  // by depth
  std::vector<AdapterWeights> weights, first, second;  // first and second: the optimizer's moments
};

// Writes root/step-<step> and spares root/step-<spared> as save_checkpoint() does; `identity` is
// what a run that goes on must have in common. NaN is never written: Error(usage).
void save_state(const std::filesystem::path& root, int keep, const TrainState& state,
                const nlohmann::json& identity, const std::vector<int>& depths,
                const TrainTensors& tensors, std::int64_t optimizer_steps,
                std::optional<std::int64_t> spared = {});

// Fills weights and optimizer, those of `own` among the depths of the run, whose tensors must have
// the stored shapes. Error(usage) with the differences when the identity is another, Error(io) when
// anything does not fit.
TrainState load_state(const std::filesystem::path& checkpoint, const nlohmann::json& identity,
                      const std::vector<int>& depths, const std::vector<int>& own,
                      std::vector<AdapterWeights>& weights, AdamW& optimizer);

// "depth.<d>.<name>" -> tensor, as adapter files name them.
std::map<std::string, at::Tensor> named_weights(const std::vector<int>& depths,
                                                const std::vector<AdapterWeights>& weights);
std::map<std::string, StoredTensor> stored_views(const std::map<std::string, at::Tensor>& tensors);

}  // namespace dex
