// The weights of one layer of the frozen backbone.
#pragma once
#include <ATen/ATen.h>

#include "common/base/safetensors.h"
#include "common/model/layer_shape.h"
#include "common/model/matrix.h"
#include "kernels/types.h"

namespace dex {

struct LayerWeights {  // D hidden, F intermediate, Q = heads * head_dim, C = kv_heads * head_dim
  at::Tensor input_norm, post_norm;  // (D) f32
  Matrix qkv;                        // (Q + 2C, D)
  Matrix out;                        // (D, Q)
  Matrix gate_up;                    // (2F, D)
  Matrix down;                       // (D, F)
  at::Tensor q_norm, k_norm;         // (head_dim) f32, undefined without LayerShape::qk_norm
};

// Layer `index` of the file. Error(io) by tensor name, with the shape seen and the shape wanted.
LayerWeights load_layer(const LayerShape& shape, int index, const WeightFile& file, Dtype dtype,
                        WeightPlace place);

}  // namespace dex
