// All that a training run must remember to go on as if it had not stopped. No rank, no world size.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "common/adapter.h"
#include "train/adamw.h"

namespace dex {

struct TrainState {
  std::int64_t step = 0;    // finished ones
  std::int64_t tokens = 0;  // that went through the model so far
  std::int64_t skipped = 0, skipped_in_row = 0;  // steps without an update, their loss or gradient being no number
  nlohmann::json evaluation = nlohmann::json::object();  // scores taken so far, by name of the exits
};

// Writes root/step-<step> and spares root/step-<spared> as save_checkpoint() does; `identity` is what a run that goes on
// must have in common. NaN is never written: Error(usage).
void save_state(const std::filesystem::path& root, int keep, const TrainState& state, const nlohmann::json& identity,
                const std::vector<int>& depths, const std::vector<AdapterWeights>& weights, const AdamW& optimizer,
                std::optional<std::int64_t> spared = {});

// Fills weights and optimizer, whose tensors must have the stored shapes. Error(usage) with the differences when the
// identity is another, Error(io) when anything does not fit.
TrainState load_state(const std::filesystem::path& checkpoint, const nlohmann::json& identity, const std::vector<int>& depths,
                      std::vector<AdapterWeights>& weights, AdamW& optimizer);

// "depth.<d>.<name>" -> tensor, as adapter files name them.
std::map<std::string, at::Tensor> named_weights(const std::vector<int>& depths, const std::vector<AdapterWeights>& weights);
std::map<std::string, StoredTensor> stored_views(const std::map<std::string, at::Tensor>& tensors);

}  // namespace dex
