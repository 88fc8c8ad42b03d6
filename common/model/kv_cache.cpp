#include "common/model/kv_cache.h"

#include "common/model/tensors.h"

namespace dex {

KvCache::KvCache(const LayerShape& shape, int num_layers, int capacity, Dtype dtype)
    : capacity_(capacity), row_size_(int(shape.kv_size())), dtype_(dtype) {
  for (int layer = 0; layer < num_layers; ++layer) {
    keys_.push_back(at::empty({capacity, row_size_}, scalar_type(dtype)));
    values_.push_back(at::empty({capacity, row_size_}, scalar_type(dtype)));
  }
}

}  // namespace dex
