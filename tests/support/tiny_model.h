// A tiny random model, written as a model directory: the same options and seed give the same bytes
// everywhere.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace dex::test {

struct TinyModel {
  std::string family = "llama";  // or "qwen3"
  int layers = 4, hidden = 32, heads = 4, kv_heads = 2, head_dim = 8, intermediate = 48, vocab = 97;
  int max_positions = 256;
  bool tied = true;
  // the head's rows come in equal pairs: every best logit is an exact tie
  bool duplicate_rows = false;
  float scale = 0.3f;  // spread of the weights: larger means more peaked logits
  std::uint64_t seed = 1;

  // config.json and model.safetensors in `dir`, which is made. Returns `dir`.
  std::filesystem::path write(const std::filesystem::path& dir) const;
};

}  // namespace dex::test
