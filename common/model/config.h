// What config.json (and the files beside it that name end tokens and how to sample) say about a
// model, in one spelling.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/token.h"

namespace dex {

struct RopeConfig {
  double theta = 10000.0;
  std::string type = "default";  // "default", "linear" or "llama3"
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 1.0;  // llama3 only
  std::int64_t original_max_positions = 0;               // llama3 only
};

struct ModelConfig {
  std::string family;  // "llama" or "qwen3"
  std::int64_t hidden_size = 0, intermediate_size = 0, vocab_size = 0;
  int num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::int64_t max_positions = 0;
  float rms_norm_eps = 1e-5f;
  RopeConfig rope;
  bool tied_head = false, qk_norm = false;
  // ascending: eos of config.json and generation_config.json, joined
  std::vector<Token> stop_ids;
  // eos_token of tokenizer_config.json and special_tokens_map.json: the tokenizer knows their ids
  std::vector<std::string> stop_texts;
  // settings of generation_config.json that would change what greedy decoding gives, or make it
  // sample: "temperature 0.6"
  std::vector<std::string> sampling;
};

// `path` is a model directory or a config.json. Unknown families, activations, rope types and
// contradictory or missing fields are an Error(usage) naming file, field, value seen and value
// wanted.
ModelConfig read_model_config(const std::filesystem::path& path);

// The numbers that a model is told apart by, as its fingerprint counts them.
std::string digest_text(const ModelConfig& config);

// head_dim/2 inverse frequencies in float32, scaling applied; as transformers computes them.
std::vector<float> inverse_frequencies(const ModelConfig& config);

}  // namespace dex
