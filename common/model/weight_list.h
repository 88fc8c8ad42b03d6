// Which tensors the weight files of a model hold: those that are read, and those that may lie there
// unread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/base/safetensors.h"
#include "common/model/config.h"

namespace dex {

using TensorShapes = std::map<std::string, std::vector<std::int64_t>>;

// Every tensor that a model of this config computes with, whichever process has it.
TensorShapes model_tensors(const ModelConfig& config);

// Tensors of the file that nothing computes with. They change what a model says if it was made with
// them (biases, further norms, scales, a head of its own), unless they repeat what is known anyway:
// - model.rotary_emb.* and model.layers.<i>.self_attn.rotary_emb.*, being inv_freq, cos_cached or
//   sin_cached: made from config.json;
// - model.causal_mask, and causal_mask and masked_bias in model.layers.<i>.self_attn: every row
// sees
//   those before it;
// - lm_head.weight where config.json ties the head to the embedding, if it is equal to that.
struct UnreadTensors {
  std::vector<std::string> harmless, wrong;
};
// Compares a tied head with the embedding only where asked: that reads both.
UnreadTensors unread_tensors(const ModelConfig& config, const WeightFile& weights,
                             bool compare_head);

// Error(io) naming what must not be there. `compare_head` as above.
void refuse_unread(const ModelConfig& config, const WeightFile& weights, bool compare_head);

// Error(usage) when hf_quant_config.json lies in the model's directory and states a quantisation.
void refuse_quantization_note(const std::filesystem::path& dir);

}  // namespace dex
