#include "tests/support/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <vector>

#include "common/base/file.h"
#include "common/base/safetensors.h"

namespace dex::test {
namespace {

// Tensors with their memory, drawn in the order they are asked for.
class Weights {
 public:
  Weights(std::uint64_t seed, float scale) : generator_(seed), scale_(scale) {}

  void matrix(const std::string& name, std::int64_t out, std::int64_t in) {
    add(name, {out, in}, 0.0f, scale_ * std::sqrt(32.0f / float(in)));
  }
  // Row 2i + 1 becomes a copy of row 2i.
  void pair_rows(const std::string& name, std::int64_t out, std::int64_t in) {
    auto& values = memory_.at(name);
    for (std::int64_t row = 1; row < out; row += 2)
      std::copy_n(values.begin() + (row - 1) * in, in, values.begin() + row * in);
  }
  void norm(const std::string& name, std::int64_t size) { add(name, {size}, 1.0f, 0.2f); }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

 private:
  // Sum of 4 uniforms: close enough to a normal, and the same on every standard library.
  float draw() {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += double(generator_() >> 11) * 0x1p-53 - 0.5;
    return float(sum * 1.7320508);
  }
  void add(const std::string& name, std::vector<std::int64_t> shape, float mean, float spread) {
    std::size_t count = 1;
    for (std::int64_t size : shape) count *= std::size_t(size);
    auto& values = memory_[name];
    for (std::size_t i = 0; i < count; ++i) values.push_back(mean + spread * draw());
    tensors_[name] = {StoredType::f32, std::move(shape), std::as_bytes(std::span(values))};
  }

  std::mt19937_64 generator_;
  float scale_;
  std::map<std::string, std::vector<float>> memory_;
  std::map<std::string, StoredTensor> tensors_;
};

nlohmann::json config_of(const TinyModel& m) {
  return {{"model_type", m.family},
          {"architectures", {m.family == "qwen3" ? "Qwen3ForCausalLM" : "LlamaForCausalLM"}},
          {"hidden_size", m.hidden},
          {"intermediate_size", m.intermediate},
          {"num_hidden_layers", m.layers},
          {"num_attention_heads", m.heads},
          {"num_key_value_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"vocab_size", m.vocab},
          {"max_position_embeddings", m.max_positions},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"rope_scaling", nullptr},
          {"tie_word_embeddings", m.tied},
          {"attention_bias", false},
          {"torch_dtype", "float32"},
          {"bos_token_id", 1},
          {"eos_token_id", 2}};
}

}  // namespace

std::filesystem::path TinyModel::write(const std::filesystem::path& dir) const {
  Weights w(seed, scale);
  w.matrix("model.embed_tokens.weight", vocab, hidden);
  for (int layer = 0; layer < layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    w.norm(prefix + "input_layernorm.weight", hidden);
    w.matrix(prefix + "self_attn.q_proj.weight", heads * head_dim, hidden);
    w.matrix(prefix + "self_attn.k_proj.weight", kv_heads * head_dim, hidden);
    w.matrix(prefix + "self_attn.v_proj.weight", kv_heads * head_dim, hidden);
    w.matrix(prefix + "self_attn.o_proj.weight", hidden, heads * head_dim);
    if (family == "qwen3") {
      w.norm(prefix + "self_attn.q_norm.weight", head_dim);
      w.norm(prefix + "self_attn.k_norm.weight", head_dim);
    }
    w.norm(prefix + "post_attention_layernorm.weight", hidden);
    w.matrix(prefix + "mlp.gate_proj.weight", intermediate, hidden);
    w.matrix(prefix + "mlp.up_proj.weight", intermediate, hidden);
    w.matrix(prefix + "mlp.down_proj.weight", hidden, intermediate);
  }
  w.norm("model.norm.weight", hidden);
  if (!tied) w.matrix("lm_head.weight", vocab, hidden);
  if (duplicate_rows)
    w.pair_rows(tied ? "model.embed_tokens.weight" : "lm_head.weight", vocab, hidden);
  make_directory(dir);
  write_safetensors(dir / "model.safetensors", w.tensors(), {{"format", "pt"}});
  write_file(dir / "config.json", config_of(*this).dump(2) + "\n");
  return dir;
}

}  // namespace dex::test
