// The passes of rows through layers: one file per engine, each the whole of a layer as that engine
// computes it.
#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "common/explore/row_layout.h"
#include "common/model/kv_cache.h"
#include "common/model/layer_shape.h"
#include "common/model/layer_weights.h"
#include "kernels/thread_pool.h"
#include "kernels/types.h"

namespace dex {

struct Layers {
  LayerShape shape;
  Dtype dtype;
  std::vector<LayerWeights> weights;  // in the order they are run
};

// As Stage::forward (layers_cpu.cpp).
void forward_layers(const Layers& layers, at::Tensor& x_RD, const RowLayout& layout, KvCache& cache,
                    ThreadPool& pool);
// As Stage::forward_causal: with our own kernels on the CPU (layers_causal.cpp), with libtorch's
// operators alone on any device (layers_torch.cpp).
at::Tensor forward_layers_causal(const Layers& layers, const at::Tensor& x_TD);
at::Tensor forward_layers_by_torch(const Layers& layers, const at::Tensor& x_TD);

// In place, the RMS norm of each of `heads` heads (heads, head_dim) of float32 (layers_cpu.cpp).
void norm_heads(const LayerShape& shape, const at::Tensor& weight, float* x, int heads);

}  // namespace dex
