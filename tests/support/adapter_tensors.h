// Tensors for an adapter file, with their memory: numbers that differ everywhere.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/adapter_file.h"

namespace dex::test {

struct AdapterTensors {
  AdapterConfig config{
      .depths = {1, 3},
      .hidden_size = 4,
      .width = 8,
      .model_fingerprint = "model",
      .data_digest = "data",
      .model_tensors = {{"model.norm.weight", "0123"}, {"lm_head.weight", "4567"}}};
  std::map<std::string, std::vector<float>> memory;
  std::map<std::string, StoredTensor> stored;

  AdapterTensors() {
    float next = 0.5f;
    for (const auto& [name, shape] : adapter_tensors(config)) {
      std::size_t count = 1;
      for (auto size : shape) count *= std::size_t(size);
      for (std::size_t i = 0; i < count; ++i) memory[name].push_back(next += 0.25f);
      stored[name] = {StoredType::f32, shape, std::as_bytes(std::span(memory[name]))};
    }
  }
  AdapterTensors(const AdapterTensors&) = delete;
  AdapterTensors& operator=(const AdapterTensors&) = delete;
};

}  // namespace dex::test
