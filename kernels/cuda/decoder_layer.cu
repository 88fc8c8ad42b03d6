#include "kernels/decoder_layer.h"

#include <algorithm>

#include "kernels/ceil_div.h"
#include "kernels/linear.h"
#include "kernels/row_ops.h"
#include "kernels/tree_attention.h"

namespace dex::cuda {
namespace {

// The layer's buffers, one after the other in the workspace; what operators need themselves comes
// last and is shared.
struct Layer {
  const DecoderLayer& p;
  float *normed = nullptr, *qkv = nullptr, *q = nullptr, *attended = nullptr, *gate = nullptr,
        *up = nullptr;
  Linear to_qkv, to_out, to_gate, to_up, to_down;
  TreeAttention attention;
  std::size_t buffer_bytes = 0, shared_bytes = 0;

  Layer(const DecoderLayer& layer, void* memory) : p(layer) {
    const int q_size = p.heads * p.head_dim, kv_size = p.kv_heads * p.head_dim;
    const auto buffer = [&](int size) {
      auto* at = reinterpret_cast<float*>(static_cast<char*>(memory) + buffer_bytes);
      buffer_bytes += round_up(std::size_t(p.rows) * std::size_t(size) * sizeof(float), 128);
      return at;
    };
    normed = buffer(p.hidden), qkv = buffer(q_size + 2 * kv_size), q = buffer(q_size),
    attended = buffer(q_size);
    gate = buffer(p.intermediate), up = buffer(p.intermediate);
    to_qkv = linear_of(normed, p.hidden, p.qkv, qkv, q_size + 2 * kv_size);
    to_out = linear_of(attended, q_size, p.out, p.x, p.hidden);
    to_out.unit = p.head_dim;
    to_gate = linear_of(normed, p.hidden, p.gate, gate, p.intermediate);
    to_up = linear_of(normed, p.hidden, p.up, up, p.intermediate);
    to_down = linear_of(gate, p.intermediate, p.down, p.x, p.hidden);
    to_down.unit = kSharedInputUnit;
    attention = {.q = q,
                 .keys = p.keys,
                 .values = p.values,
                 .context = p.context,
                 .context_size = p.context_size,
                 .ancestors = p.ancestors,
                 .ancestors_begin = p.ancestors_begin,
                 .out = attended,
                 .rows = p.rows,
                 .heads = p.heads,
                 .kv_heads = p.kv_heads,
                 .head_dim = p.head_dim,
                 .scale = p.attention_scale,
                 .dtype = p.cache_dtype,
                 .most_keys = p.most_keys};
    shared_bytes = tree_attention_workspace(attention);
    for (const Linear* l : {&to_qkv, &to_out, &to_gate, &to_up, &to_down})
      shared_bytes = std::max(shared_bytes, linear_workspace(*l));
  }

  Linear linear_of(const float* x, int in, const Weight& weight, float* y, int out) const {
    Linear l;
    l.x = x, l.weight = weight.data, l.scales = weight.scales, l.y = y;
    l.rows = p.rows, l.in = in, l.out = out, l.dtype = p.dtype;
    return l;
  }
};

int norm(const DecoderLayer& p, const float* weight, float* y, Stream stream) {
  return rms_norm(
      {.x = p.x, .weight = weight, .y = y, .rows = p.rows, .size = p.hidden, .eps = p.eps}, stream);
}

}  // namespace

std::size_t decoder_layer_workspace(const DecoderLayer& p) {
  if (p.rows <= 0) return 0;
  const Layer layer(p, nullptr);
  return layer.buffer_bytes + layer.shared_bytes;
}

int decoder_layer(const DecoderLayer& p, Workspace workspace, Stream stream) {
  if (p.rows <= 0) return 0;
  const Layer l(p, workspace.memory);
  if (workspace.bytes < l.buffer_bytes + l.shared_bytes) return kTooSmall;
  const Workspace shared{static_cast<char*>(workspace.memory) + l.buffer_bytes, l.shared_bytes};
  int error = norm(p, p.input_norm, l.normed, stream);
  if (!error) error = linear(l.to_qkv, shared, stream);
  // All rows are in the cache before any of them is attended to: a row may be the ancestor of its
  // neighbour.
  if (!error)
    error = split_qkv({.qkv = l.qkv,
                       .q_norm = p.q_norm,
                       .k_norm = p.k_norm,
                       .positions = p.positions,
                       .cache_rows = p.cache_rows,
                       .inverse_frequencies = p.inverse_frequencies,
                       .q = l.q,
                       .keys = p.keys,
                       .values = p.values,
                       .rows = p.rows,
                       .heads = p.heads,
                       .kv_heads = p.kv_heads,
                       .head_dim = p.head_dim,
                       .eps = p.eps,
                       .dtype = p.cache_dtype},
                      stream);
  if (!error) error = tree_attention(l.attention, shared, stream);
  if (!error) error = linear_add(l.to_out, 1, shared, stream);
  if (!error) error = norm(p, p.post_norm, l.normed, stream);
  if (!error) error = linear(l.to_gate, shared, stream);
  if (!error) error = linear(l.to_up, shared, stream);
  if (!error)
    error = silu_mul(
        {.gate = l.gate, .up = l.up, .y = l.gate, .count = std::int64_t{p.rows} * p.intermediate},
        stream);
  if (!error) error = linear_add(l.to_down, 1, shared, stream);
  return error;
}

}  // namespace dex::cuda
