#include "common/model/stage.h"

namespace dex {

Stage::Stage(const ModelConfig& config, LayerRange layers, const WeightFile& weights, Dtype dtype,
             WeightPlace place)
    : config_(config), range_(layers), layers_{LayerShape(config), dtype, {}} {
  for (int layer = layers.first; layer < layers.last; ++layer)
    layers_.weights.push_back(load_layer(layers_.shape, layer, weights, dtype, place));
}

void Stage::forward(at::Tensor& x, const RowLayout& layout, KvCache& cache,
                    ThreadPool& pool) const {
  forward_layers(layers_, x, layout, cache, pool);
}

at::Tensor Stage::forward_causal(const at::Tensor& x_TD) const {
  return x_TD.is_cpu() ? forward_layers_causal(layers_, x_TD)
                       : forward_layers_by_torch(layers_, x_TD);
}

at::Tensor Stage::forward_causal_by_torch(const at::Tensor& x_TD) const {
  return forward_layers_by_torch(layers_, x_TD);
}

}  // namespace dex
