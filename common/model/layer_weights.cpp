#include "common/model/layer_weights.h"

#include <fmt/format.h>

#include "common/model/tensors.h"

namespace dex {

LayerWeights load_layer(const LayerShape& c, int index, const WeightFile& file, Dtype dtype,
                        WeightPlace place) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::int64_t q = c.q_size(), kv = c.kv_size();
  const auto matrix = [&](std::vector<Matrix::Part> parts, std::int64_t in) {
    for (auto& part : parts) part.name = prefix + part.name;
    return Matrix::load(file, parts, in, dtype, place);
  };
  const auto vector = [&](const char* name, std::int64_t size) {
    return load_tensor(file, prefix + name, {size}, Dtype::f32).to(place.device);
  };
  LayerWeights w;
  w.input_norm = vector("input_layernorm.weight", c.hidden);
  w.post_norm = vector("post_attention_layernorm.weight", c.hidden);
  w.qkv = matrix({{"self_attn.q_proj.weight", q},
                  {"self_attn.k_proj.weight", kv},
                  {"self_attn.v_proj.weight", kv}},
                 c.hidden);
  w.out = matrix({{"self_attn.o_proj.weight", c.hidden}}, q);
  w.out.share_input_by(c.head_dim);
  w.gate_up = matrix(
      {{"mlp.gate_proj.weight", c.intermediate}, {"mlp.up_proj.weight", c.intermediate}}, c.hidden);
  w.down = matrix({{"mlp.down_proj.weight", c.hidden}}, c.intermediate);
  w.down.share_input_by(kSharedInputUnit);
  if (c.qk_norm) {
    w.q_norm = vector("self_attn.q_norm.weight", c.head_dim);
    w.k_norm = vector("self_attn.k_norm.weight", c.head_dim);
  }
  return w;
}

}  // namespace dex
