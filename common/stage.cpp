#include "common/stage.h"

#include <cmath>
#include <cstring>

#include "common/error.h"
#include "common/tensors.h"
#include "kernels/linear.h"
#include "kernels/row_ops.h"
#include "kernels/tree_attention.h"

namespace dex {
namespace {

LayerWeights load_layer(const ModelConfig& c, int layer, const WeightFile& file, Dtype dtype) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::int64_t hidden = c.hidden_size, q = std::int64_t{c.num_heads} * c.head_dim,
                     kv = std::int64_t{c.num_kv_heads} * c.head_dim;
  const auto load = [&](const char* name, std::vector<std::int64_t> shape, Dtype as) {
    return load_tensor(file, prefix + name, shape, as);
  };
  LayerWeights w;
  w.input_norm = load("input_layernorm.weight", {hidden}, Dtype::f32);
  w.post_norm = load("post_attention_layernorm.weight", {hidden}, Dtype::f32);
  w.qkv = at::cat({load("self_attn.q_proj.weight", {q, hidden}, dtype), load("self_attn.k_proj.weight", {kv, hidden}, dtype),
                   load("self_attn.v_proj.weight", {kv, hidden}, dtype)});
  w.out = load("self_attn.o_proj.weight", {hidden, q}, dtype);
  w.gate_up = at::cat({load("mlp.gate_proj.weight", {c.intermediate_size, hidden}, dtype),
                       load("mlp.up_proj.weight", {c.intermediate_size, hidden}, dtype)});
  w.down = load("mlp.down_proj.weight", {hidden, c.intermediate_size}, dtype);
  if (c.qk_norm) {
    w.q_norm = load("self_attn.q_norm.weight", {c.head_dim}, Dtype::f32);
    w.k_norm = load("self_attn.k_norm.weight", {c.head_dim}, Dtype::f32);
  }
  return w;
}

float* data(const at::Tensor& t) { return t.data_ptr<float>(); }

// The buffers of one forward call, shared by its layers.
struct Buffers {
  at::Tensor normed, qkv, q, k, v, attended, gate, up;

  Buffers(const ModelConfig& c, int rows) {
    const std::int64_t r = rows, q_size = std::int64_t{c.num_heads} * c.head_dim,
                       kv_size = std::int64_t{c.num_kv_heads} * c.head_dim;
    normed = at::empty({r, c.hidden_size});
    qkv = at::empty({r, q_size + 2 * kv_size});
    q = at::empty({r, q_size});
    k = at::empty({r, kv_size});
    v = at::empty({r, kv_size});
    attended = at::empty({r, q_size});
    gate = at::empty({r, c.intermediate_size});
    up = at::empty({r, c.intermediate_size});
  }

  void split_qkv() {
    const auto rows = q.size(0), q_size = q.size(1), kv_size = k.size(1);
    const float* from = data(qkv);
    for (std::int64_t row = 0; row < rows; ++row, from += q_size + 2 * kv_size) {
      std::memcpy(data(q) + row * q_size, from, sizeof(float) * static_cast<std::size_t>(q_size));
      std::memcpy(data(k) + row * kv_size, from + q_size, sizeof(float) * static_cast<std::size_t>(kv_size));
      std::memcpy(data(v) + row * kv_size, from + q_size + kv_size, sizeof(float) * static_cast<std::size_t>(kv_size));
    }
  }
};

void linear(const at::Tensor& x, const void* weight, std::int64_t out, Dtype dtype, at::Tensor& y, Workers& workers) {
  cpu::linear({.x = data(x), .weight = weight, .y = data(y), .rows = static_cast<int>(x.size(0)),
               .in = static_cast<int>(x.size(1)), .out = static_cast<int>(out), .dtype = dtype}, workers);
}

void norm(const float* x, const at::Tensor& weight, float* y, std::int64_t rows, float eps) {
  cpu::rms_norm({.x = x, .weight = data(weight), .y = y, .rows = static_cast<int>(rows),
                 .size = static_cast<int>(weight.size(0)), .eps = eps});
}

void add(const at::Tensor& x, at::Tensor& y) { cpu::add_scaled({.x = data(x), .y = data(y), .count = x.numel()}); }

}  // namespace

Stage::Stage(const ModelConfig& config, LayerRange layers, const WeightFile& weights, Dtype dtype)
    : config_(config), range_(layers), dtype_(dtype), inverse_frequencies_(inverse_frequencies(config)) {
  for (int layer = layers.first; layer < layers.last; ++layer)
    layers_.push_back(load_layer(config, layer, weights, dtype));
}

void Stage::forward(at::Tensor& x, const RowLayout& layout, KvCache& cache, Workers& workers) const {
  const int rows = layout.rows();
  if (rows == 0) return;
  const ModelConfig& c = config_;
  Buffers b(c, rows);
  const auto rope = [&](at::Tensor& t, int heads) {
    cpu::rope({.x = data(t), .positions = layout.positions.data(), .inverse_frequencies = inverse_frequencies_.data(),
               .rows = rows, .heads = heads, .head_dim = c.head_dim});
  };
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerWeights& w = layers_[i];
    const int layer = static_cast<int>(i);

    norm(data(x), w.input_norm, data(b.normed), rows, c.rms_norm_eps);
    linear(b.normed, w.qkv.data_ptr(), w.qkv.size(0), dtype_, b.qkv, workers);
    b.split_qkv();
    if (c.qk_norm) {
      norm(data(b.q), w.q_norm, data(b.q), std::int64_t{rows} * c.num_heads, c.rms_norm_eps);
      norm(data(b.k), w.k_norm, data(b.k), std::int64_t{rows} * c.num_kv_heads, c.rms_norm_eps);
    }
    rope(b.q, c.num_heads);
    rope(b.k, c.num_kv_heads);
    // All rows are in the cache before any of them is attended to: a row may be the ancestor of its neighbour.
    cpu::kv_append({.k = data(b.k), .v = data(b.v), .cache_rows = layout.cache_rows.data(), .keys = cache.keys(layer),
                    .values = cache.values(layer), .rows = rows, .row_size = cache.row_size(), .dtype = cache.dtype()});
    cpu::tree_attention({.q = data(b.q), .keys = cache.keys(layer), .values = cache.values(layer),
                         .context = layout.context.data(), .context_size = layout.context_size.data(),
                         .branch = layout.branch.data(), .branch_begin = layout.branch_begin.data(),
                         .out = data(b.attended), .rows = rows, .heads = c.num_heads, .kv_heads = c.num_kv_heads,
                         .head_dim = c.head_dim, .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                         .dtype = cache.dtype()}, workers);
    linear(b.attended, w.out.data_ptr(), c.hidden_size, dtype_, b.normed, workers);
    add(b.normed, x);

    norm(data(x), w.post_norm, data(b.normed), rows, c.rms_norm_eps);
    const auto half = static_cast<std::size_t>(c.intermediate_size * c.hidden_size) * static_cast<std::size_t>(size_of(dtype_));
    linear(b.normed, w.gate_up.data_ptr(), c.intermediate_size, dtype_, b.gate, workers);
    linear(b.normed, static_cast<const std::byte*>(w.gate_up.data_ptr()) + half, c.intermediate_size, dtype_, b.up, workers);
    cpu::silu_multiply({.gate = data(b.gate), .up = data(b.up), .y = data(b.gate), .count = b.gate.numel()});
    linear(b.gate, w.down.data_ptr(), c.hidden_size, dtype_, b.normed, workers);
    add(b.normed, x);
  }
}

}  // namespace dex
