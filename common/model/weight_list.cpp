#include "common/model/weight_list.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/base/error.h"
#include "common/base/json_file.h"

namespace dex {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

constexpr std::string_view kModelBuffers[] = {"rotary_emb.inv_freq", "rotary_emb.cos_cached",
                                              "rotary_emb.sin_cached", "causal_mask"};
constexpr std::string_view kLayerBuffers[] = {
    "self_attn.rotary_emb.inv_freq", "self_attn.rotary_emb.cos_cached",
    "self_attn.rotary_emb.sin_cached", "self_attn.causal_mask", "self_attn.masked_bias"};

// "model.layers.3.mlp.x" -> 3, "mlp.x"; -1 when it is of no layer.
std::pair<int, std::string_view> in_layer(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return {-1, name};
  name.remove_prefix(kPrefix.size());
  int layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return {-1, name};
  return {layer, name.substr(std::size_t(end + 1 - name.data()))};
}

bool is_buffer(const ModelConfig& config, std::string_view name) {
  const auto among = [](std::string_view rest, const auto& list) {
    return std::find(std::begin(list), std::end(list), rest) != std::end(list);
  };
  const auto [layer, rest] = in_layer(name);
  if (layer >= 0) return layer < config.num_layers && among(rest, kLayerBuffers);
  constexpr std::string_view kPrefix = "model.";
  return name.starts_with(kPrefix) && among(name.substr(kPrefix.size()), kModelBuffers);
}

bool equal_to_embedding(const WeightFile& weights) {
  const StoredTensor& head = weights.tensors().at(kHead);
  const auto embedding = weights.tensors().find(kEmbedding);
  return embedding != weights.tensors().end() && head.type == embedding->second.type &&
         head.shape == embedding->second.shape &&
         std::equal(head.bytes.begin(), head.bytes.end(), embedding->second.bytes.begin(),
                    embedding->second.bytes.end());
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 4;
  const auto end = names.begin() + std::ptrdiff_t(std::min(names.size(), kShown));
  std::string text = fmt::format("{}", fmt::join(names.begin(), end, ", "));
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace

TensorShapes model_tensors(const ModelConfig& c) {
  const std::int64_t query = std::int64_t{c.num_heads} * c.head_dim,
                     key = std::int64_t{c.num_kv_heads} * c.head_dim;
  TensorShapes shapes{{kEmbedding, {c.vocab_size, c.hidden_size}},
                      {"model.norm.weight", {c.hidden_size}}};
  if (!c.tied_head) shapes[kHead] = {c.vocab_size, c.hidden_size};
  for (int i = 0; i < c.num_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    shapes[layer + "input_layernorm.weight"] =
        shapes[layer + "post_attention_layernorm.weight"] = {c.hidden_size};
    shapes[layer + "self_attn.q_proj.weight"] = {query, c.hidden_size};
    shapes[layer + "self_attn.k_proj.weight"] =
        shapes[layer + "self_attn.v_proj.weight"] = {key, c.hidden_size};
    shapes[layer + "self_attn.o_proj.weight"] = {c.hidden_size, query};
    shapes[layer + "mlp.gate_proj.weight"] =
        shapes[layer + "mlp.up_proj.weight"] = {c.intermediate_size, c.hidden_size};
    shapes[layer + "mlp.down_proj.weight"] = {c.hidden_size, c.intermediate_size};
    if (c.qk_norm)
      shapes[layer + "self_attn.q_norm.weight"] =
          shapes[layer + "self_attn.k_norm.weight"] = {c.head_dim};
  }
  return shapes;
}

UnreadTensors unread_tensors(const ModelConfig& config, const WeightFile& weights,
                             bool compare_head) {
  const TensorShapes read = model_tensors(config);
  UnreadTensors unread;
  for (const auto& [name, tensor] : weights.tensors()) {
    if (read.contains(name)) continue;
    const bool harmless =
        is_buffer(config, name) ||
        (name == kHead && config.tied_head && (!compare_head || equal_to_embedding(weights)));
    (harmless ? unread.harmless : unread.wrong).push_back(name);
  }
  return unread;
}

void refuse_unread(const ModelConfig& config, const WeightFile& weights, bool compare_head) {
  const std::vector<std::string> wrong = unread_tensors(config, weights, compare_head).wrong;
  const auto past = std::find_if(wrong.begin(), wrong.end(), [&](const std::string& name) {
    return in_layer(name).first >= config.num_layers;
  });
  require(past == wrong.end(), ExitCode::io,
          "{}: the weights go on after the {} layers that config.json names, with {}",
          weights.origin(), config.num_layers, past == wrong.end() ? "" : *past);
  require(std::find(wrong.begin(), wrong.end(), kHead) == wrong.end(), ExitCode::io,
          "{}: {} is another than {}, but config.json ties the head to the embedding "
          "(tie_word_embeddings)",
          weights.origin(), kHead, kEmbedding);
  require(wrong.empty(), ExitCode::io,
          "{}: holds tensors that a {} model with this config.json does not read, so another model "
          "is meant: {}",
          weights.origin(), config.family, some_of(wrong));
}

void refuse_quantization_note(const std::filesystem::path& dir) {
  const std::filesystem::path note = dir / "hf_quant_config.json";
  if (!std::filesystem::exists(note)) return;
  const nlohmann::json object = read_json_object(note);
  const auto found = object.find("quantization");
  if (found == object.end() || !found->is_object()) return;
  for (const char* name : {"quant_algo", "kv_cache_quant_algo"}) {
    const nlohmann::json value = found->value(name, nlohmann::json());
    require(value.is_null(), ExitCode::usage,
            "{}: {} is {}; wanted null: quantised weights are not read", note.string(), name,
            value.dump());
  }
}

}  // namespace dex
