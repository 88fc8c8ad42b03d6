// Attention of rows over the committed context, then their trie ancestors, then themselves, in
// position order.
#pragma once
#include <cstdint>

#include "kernels/stream.h"
#include "kernels/thread_pool.h"
#include "kernels/types.h"

namespace dex {

struct TreeAttention {
  const float* q = nullptr;                    // (rows, heads, head_dim)
  const void* keys = nullptr;                  // (capacity, kv_heads, head_dim) of dtype
  const void* values = nullptr;                // as keys
  const std::int32_t* context = nullptr;       // position -> cache row
  const std::int32_t* context_size = nullptr;  // (rows): the row sees positions [0, context_size)
  // cache rows that follow the context, per row, the row's own last
  const std::int32_t* ancestors = nullptr;
  // (rows + 1): row i has ancestors[ancestors_begin[i] .. ancestors_begin[i+1])
  const std::int32_t* ancestors_begin = nullptr;
  float* out = nullptr;  // (rows, heads, head_dim)
  int rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;
  Dtype dtype = Dtype::f32;
  // no row sees more; for cuda, whose grid cannot depend on what only the device holds
  int most_keys = 0;
};

namespace cpu {
// The sums run over a row's keys by absolute position: a key counts the same from the context and
// from the ancestors.
void tree_attention(const TreeAttention& p, ThreadPool& pool);
}  // namespace cpu

namespace cuda {
// A row of `out` has the same bits whatever the other rows, most_keys, the size of the workspace
// and the cache rows its keys are kept in. Rows are taken as many at a time as the workspace has
// room for, one at least.
int tree_attention(const TreeAttention& p, Workspace workspace, Stream stream);
// Bytes that serve well: for all rows, or half a GiB where fewer already keep a device busy.
// Pointers do not matter.
std::size_t tree_attention_workspace(const TreeAttention& p);
}  // namespace cuda

}  // namespace dex
