#include "common/model/stage.h"

#include <cmath>
#include <cstring>

#include "common/base/error.h"
#include "common/model/tensors.h"
#include "kernels/row_ops.h"
#include "kernels/tree_attention.h"

namespace dex {
namespace {

LayerWeights load_layer(const ModelConfig& c, int layer, const WeightFile& file, Dtype dtype,
                        WeightPlace place) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::int64_t hidden = c.hidden_size, q = std::int64_t{c.num_heads} * c.head_dim,
                     kv = std::int64_t{c.num_kv_heads} * c.head_dim;
  const auto matrix = [&](std::vector<Matrix::Part> parts, std::int64_t in) {
    for (auto& part : parts) part.name = prefix + part.name;
    return Matrix::load(file, parts, in, dtype, place);
  };
  const auto vector = [&](const char* name, std::int64_t size) {
    return load_tensor(file, prefix + name, {size}, Dtype::f32).to(place.device);
  };
  LayerWeights w;
  w.input_norm = vector("input_layernorm.weight", hidden);
  w.post_norm = vector("post_attention_layernorm.weight", hidden);
  w.qkv = matrix({{"self_attn.q_proj.weight", q},
                  {"self_attn.k_proj.weight", kv},
                  {"self_attn.v_proj.weight", kv}},
                 hidden);
  w.out = matrix({{"self_attn.o_proj.weight", hidden}}, q);
  w.gate_up = matrix(
      {{"mlp.gate_proj.weight", c.intermediate_size}, {"mlp.up_proj.weight", c.intermediate_size}},
      hidden);
  w.down = matrix({{"mlp.down_proj.weight", hidden}}, c.intermediate_size);
  if (c.qk_norm) {
    w.q_norm = vector("self_attn.q_norm.weight", c.head_dim);
    w.k_norm = vector("self_attn.k_norm.weight", c.head_dim);
  }
  return w;
}

float* row(const at::Tensor& t, int index) { return t.data_ptr<float>() + index * t.size(1); }

// One forward call: its buffers, shared by its layers, and the steps that touch each row by itself.
class Forward {
 public:
  Forward(const ModelConfig& config, const RowLayout& layout,
          const std::vector<float>& inverse_frequencies, at::Tensor& x, KvCache& cache,
          ThreadPool& pool)
      : c_(config),
        layout_(layout),
        inverse_frequencies_(inverse_frequencies),
        cache_(cache),
        pool_(pool),
        x_(x) {
    const std::int64_t rows = layout.rows(), kv = std::int64_t{c_.num_kv_heads} * c_.head_dim;
    const std::int64_t q = std::int64_t{c_.num_heads} * c_.head_dim;
    normed_ = at::empty({rows, c_.hidden_size});
    qkv_ = at::empty({rows, q + 2 * kv});
    q_ = at::empty({rows, q});
    k_ = at::empty({rows, kv});
    v_ = at::empty({rows, kv});
    attended_ = at::empty({rows, q});
    gate_up_ = at::empty({rows, 2 * c_.intermediate_size});
    gated_ = at::empty({rows, c_.intermediate_size});
  }

  void layer(const LayerWeights& w, const LayerWeights* following, int index) {
    each_slice([&](int first, int count) { norm(x_, w.input_norm, first, count); });
    w.qkv.multiply(normed_, qkv_, pool_, {}, &w.out);
    // All rows are in the cache before any of them is attended to: a row may be the ancestor of its
    // neighbour.
    each_slice([&](int first, int count) { place(w, index, first, count); });
    attend(index);
    w.out.multiply(attended_, normed_, pool_, {}, &w.gate_up);
    each_slice([&](int first, int count) {
      add(first, count);
      norm(x_, w.post_norm, first, count);
    });
    w.gate_up.multiply(normed_, gate_up_, pool_, {}, &w.down);
    each_slice([&](int first, int count) { gate(first, count); });
    w.down.multiply(gated_, normed_, pool_, {}, following ? &following->qkv : nullptr);
    each_slice([&](int first, int count) { add(first, count); });
  }

 private:
  // Few rows are not worth a second thread.
  template <class Body>
  void each_slice(const Body& body) {
    constexpr int kSlice = 16;
    const int rows = layout_.rows();
    if (rows <= kSlice) return body(0, rows);
    pool_.run((rows + kSlice - 1) / kSlice,
              [&](int i) { body(i * kSlice, std::min(kSlice, rows - i * kSlice)); });
  }

  void norm(const at::Tensor& x, const at::Tensor& weight, int first, int count) {
    cpu::rms_norm({.x = row(x, first),
                   .weight = weight.data_ptr<float>(),
                   .y = row(normed_, first),
                   .rows = count,
                   .size = int(c_.hidden_size),
                   .eps = c_.rms_norm_eps});
  }

  void norm_heads(float* x, const at::Tensor& weight, int heads) {
    cpu::rms_norm({.x = x,
                   .weight = weight.data_ptr<float>(),
                   .y = x,
                   .rows = heads,
                   .size = c_.head_dim,
                   .eps = c_.rms_norm_eps});
  }

  void rotate(float* x, int heads, int first, int count) {
    cpu::rope({.x = x,
               .positions = layout_.positions.data() + first,
               .inverse_frequencies = inverse_frequencies_.data(),
               .rows = count,
               .heads = heads,
               .head_dim = c_.head_dim});
  }

  // From the product to queries and cache.
  void place(const LayerWeights& w, int index, int first, int count) {
    for (int i = first; i < first + count; ++i) {
      const float* from = row(qkv_, i);
      for (const at::Tensor* part : {&q_, &k_, &v_}) {
        std::memcpy(row(*part, i), from, sizeof(float) * std::size_t(part->size(1)));
        from += part->size(1);
      }
    }
    if (c_.qk_norm) {
      norm_heads(row(q_, first), w.q_norm, count * c_.num_heads);
      norm_heads(row(k_, first), w.k_norm, count * c_.num_kv_heads);
    }
    rotate(row(q_, first), c_.num_heads, first, count);
    rotate(row(k_, first), c_.num_kv_heads, first, count);
    cpu::kv_append({.k = row(k_, first),
                    .v = row(v_, first),
                    .cache_rows = layout_.cache_rows.data() + first,
                    .keys = cache_.keys(index),
                    .values = cache_.values(index),
                    .rows = count,
                    .row_size = cache_.row_size(),
                    .dtype = cache_.dtype()});
  }

  void attend(int index) {
    cpu::tree_attention({.q = row(q_, 0),
                         .keys = cache_.keys(index),
                         .values = cache_.values(index),
                         .context = layout_.context.data(),
                         .context_size = layout_.context_size.data(),
                         .ancestors = layout_.ancestors.data(),
                         .ancestors_begin = layout_.ancestors_begin.data(),
                         .out = row(attended_, 0),
                         .rows = layout_.rows(),
                         .heads = c_.num_heads,
                         .kv_heads = c_.num_kv_heads,
                         .head_dim = c_.head_dim,
                         .scale = 1.0f / std::sqrt(float(c_.head_dim)),
                         .dtype = cache_.dtype()},
                        pool_);
  }

  void gate(int first, int count) {
    for (int i = first; i < first + count; ++i)
      cpu::silu_mul({.gate = row(gate_up_, i),
                     .up = row(gate_up_, i) + c_.intermediate_size,
                     .y = row(gated_, i),
                     .count = c_.intermediate_size});
  }

  void add(int first, int count) {
    cpu::axpy({.x = row(normed_, first), .y = row(x_, first), .count = count * x_.size(1)});
  }

  const ModelConfig& c_;
  const RowLayout& layout_;
  const std::vector<float>& inverse_frequencies_;
  KvCache& cache_;
  ThreadPool& pool_;
  at::Tensor& x_;
  at::Tensor normed_, qkv_, q_, k_, v_, attended_, gate_up_, gated_;
};

}  // namespace

Stage::Stage(const ModelConfig& config, LayerRange layers, const WeightFile& weights, Dtype dtype,
             WeightPlace place)
    : config_(config),
      range_(layers),
      dtype_(dtype),
      inverse_frequencies_(inverse_frequencies(config)) {
  for (int layer = layers.first; layer < layers.last; ++layer)
    layers_.push_back(load_layer(config, layer, weights, dtype, place));
}

void Stage::forward(at::Tensor& x, const RowLayout& layout, KvCache& cache,
                    ThreadPool& pool) const {
  if (layout.rows() == 0) return;
  Forward forward(config_, layout, inverse_frequencies_, x, cache, pool);
  for (std::size_t i = 0; i < layers_.size(); ++i)
    forward.layer(layers_[i], i + 1 < layers_.size() ? &layers_[i + 1] : nullptr, int(i));
}

}  // namespace dex
