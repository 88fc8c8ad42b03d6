// A model of finite weights whose numbers end at one id.
#pragma once
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/base/safetensors.h"
#include "common/base/token.h"

namespace dex::test {

// Alters a written float32 model whose head is not tied: the row of `id` is NaN from the first
// layer on, and so is every row that attends to it. Other rows do not depend on which id it is; -1
// breaks at none.
inline void break_at(const std::filesystem::path& model, Token id) {
  const WeightFile weights = WeightFile::open(model);
  auto tensors = weights.tensors();
  std::map<std::string, std::vector<float>> changed;
  const auto values = [&](const std::string& name) -> std::vector<float>& {
    StoredTensor& tensor = tensors.at(name);
    auto& copy = changed[name];
    copy.resize(tensor.bytes.size() / sizeof(float));
    std::memcpy(copy.data(), tensor.bytes.data(), tensor.bytes.size());
    tensor.bytes = std::as_bytes(std::span(copy));
    return copy;
  };
  // Only that id has something in the last dimension, nothing is added to it, and the first layer
  // cannot bear it.
  const std::string embedding = "model.embed_tokens.weight", layer = "model.layers.0.";
  const auto hidden = std::size_t(tensors.at(embedding).shape[1]);
  auto& rows = values(embedding);
  for (std::size_t row = 0; row * hidden < rows.size(); ++row)
    rows[row * hidden + hidden - 1] = int(row) == id ? 1.0f : 0.0f;
  for (const char* name : {"mlp.gate_proj.weight", "mlp.up_proj.weight"}) {
    auto& all = values(layer + name);
    for (std::size_t at = hidden - 1; at < all.size(); at += hidden) all[at] = 1e30f;
  }
  for (const char* name : {"self_attn.o_proj.weight", "mlp.down_proj.weight"}) {
    const auto width = tensors.at(layer + name).shape[1];
    auto& all = values(layer + name);
    std::fill(all.end() - width, all.end(), 0.0f);
  }
  write_safetensors(model / "broken", tensors, weights.metadata());
  std::filesystem::rename(model / "broken", model / "model.safetensors");
}

}  // namespace dex::test
