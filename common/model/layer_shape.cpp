#include "common/model/layer_shape.h"

#include <cmath>

namespace dex {

LayerShape::LayerShape(const ModelConfig& c)
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
