// Keys and values of one stage: a row per position or trie node, the same row number at every layer
// of every stage.
#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "common/model/layer_shape.h"
#include "kernels/types.h"

namespace dex {

class KvCache {
 public:
  // Pages are touched only as rows are written.
  KvCache(const LayerShape& shape, int num_layers, int capacity, Dtype dtype);

  int capacity() const { return capacity_; }
  int row_size() const { return row_size_; }  // kv_heads * head_dim
  Dtype dtype() const { return dtype_; }
  void* keys(int layer) { return keys_[layer].data_ptr(); }      // (capacity, row_size)
  void* values(int layer) { return values_[layer].data_ptr(); }  // (capacity, row_size)

 private:
  int capacity_, row_size_;
  Dtype dtype_;
  std::vector<at::Tensor> keys_, values_;
};

}  // namespace dex
