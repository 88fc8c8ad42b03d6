// What a layer computes, in numbers: every engine takes them from here, made once from the config.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/model/config.h"

namespace dex {

struct LayerShape {
  explicit LayerShape(const ModelConfig& config);

  std::int64_t hidden, intermediate;
  int heads, kv_heads, head_dim;
  bool qk_norm;  // queries and keys are normed, head by head, before they are rotated
  float eps;     // of every norm
  float attention_scale;
  std::vector<float> inverse_frequencies;  // (head_dim / 2), of the rotation of half-split pairs

  std::int64_t q_size() const { return std::int64_t{heads} * head_dim; }
  std::int64_t kv_size() const { return std::int64_t{kv_heads} * head_dim; }
  std::int64_t qkv_size() const { return q_size() + 2 * kv_size(); }
};

inline LayerShape::LayerShape(const ModelConfig& c)
    : hidden(c.hidden_size),
      intermediate(c.intermediate_size),
      heads(c.num_heads),
      kv_heads(c.num_kv_heads),
      head_dim(c.head_dim),
      qk_norm(c.qk_norm),
      eps(c.rms_norm_eps),
      attention_scale(1.0f / std::sqrt(float(c.head_dim))),
      inverse_frequencies(dex::inverse_frequencies(c)) {}

}  // namespace dex
