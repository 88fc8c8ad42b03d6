// Layers (d_{k-1}, d_k] of the frozen backbone: the one model that training and decoding run.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "common/base/safetensors.h"
#include "common/base/token.h"
#include "common/explore/depth_set.h"
#include "common/explore/row_layout.h"
#include "common/model/config.h"
#include "common/model/kv_cache.h"
#include "common/model/layers.h"
#include "common/model/matrix.h"
#include "kernels/thread_pool.h"
#include "kernels/types.h"

namespace dex {

class Stage {
 public:
  // Reads its own layers only. Shapes are checked by tensor name: Error(io) with the shape seen and
  // the shape wanted.
  Stage(const ModelConfig& config, LayerRange layers, const WeightFile& weights, Dtype dtype,
        WeightPlace place);

  // x_RD (rows, hidden) f32, in place, with the decoder's row-invariant kernels: a row's bits do
  // not depend on its neighbours. Writes the rows' K and V into the cache.
  void forward(at::Tensor& x_RD, const RowLayout& layout, KvCache& cache, ThreadPool& pool) const;

  // Training: a whole sequence with libtorch's products and causal attention, where rows and
  // weights are, CPU or GPU. f32 in and out. No cache, no gradient. Weights in rows only.
  at::Tensor forward_causal(const at::Tensor& x_TD) const;
  at::Tensor forward_causal_by_torch(
      const at::Tensor& x_TD) const;  // the same of libtorch's operators alone, for GPUs

  LayerRange range() const { return range_; }
  const std::vector<LayerWeights>& layers() const { return layers_.weights; }
  const ModelConfig& config() const { return config_; }
  Dtype dtype() const { return layers_.dtype; }
  KvCache make_cache(int capacity) const {
    return KvCache(layers_.shape, range_.size(), capacity, unquantized(dtype()));
  }

 private:
  ModelConfig config_;
  LayerRange range_;
  Layers layers_;
};

}  // namespace dex
