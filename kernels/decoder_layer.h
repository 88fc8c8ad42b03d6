// One layer of the backbone over rows in flight: what common/model/layers_cpu.cpp does with the
// cpu:: operators, queued on a device.
#pragma once
#include <cstdint>

#include "kernels/stream.h"
#include "kernels/types.h"

namespace dex {

struct Weight {  // (out, in) of the layer's dtype
  const void* data = nullptr;
  const float* scales = nullptr;  // (out), of i8 only
};

struct DecoderLayer {  // D hidden, F intermediate, Q = heads * head_dim, C = kv_heads * head_dim
  float* x = nullptr;  // (rows, D), in place
  const float* input_norm = nullptr;  // (D)
  const float* post_norm = nullptr;   // (D)
  const float* q_norm = nullptr;      // (head_dim), or null with k_norm
  const float* k_norm = nullptr;
  Weight qkv, out, gate, up, down;             // (Q + 2C, D), (D, Q), (F, D), (F, D), (D, F)
  const float* inverse_frequencies = nullptr;  // (head_dim / 2)
  // Where the rows stand: as TreeAttention and KvAppend have it.
  const std::int32_t* positions = nullptr;
  const std::int32_t* cache_rows = nullptr;
  const std::int32_t* context = nullptr;
  const std::int32_t* context_size = nullptr;
  const std::int32_t* ancestors = nullptr;
  const std::int32_t* ancestors_begin = nullptr;
  int most_keys = 0;
  void* keys = nullptr;  // (capacity, kv_heads, head_dim) of cache_dtype
  void* values = nullptr;
  int rows = 0, hidden = 0, intermediate = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float eps = 0, attention_scale = 0;
  Dtype dtype = Dtype::f32, cache_dtype = Dtype::f32;
};

namespace cuda {
// A row's bits depend on its own keys and values only.
int decoder_layer(const DecoderLayer& p, Workspace workspace, Stream stream);
std::size_t decoder_layer_workspace(const DecoderLayer& p);  // bytes; the pointers do not matter
}  // namespace cuda

}  // namespace dex
