// The decoder's pass on the CPU, with the row-invariant kernels.
#include <algorithm>
#include <cstring>

#include "common/model/layers.h"
#include "kernels/ceil_div.h"
#include "kernels/row_ops.h"
#include "kernels/tree_attention.h"

namespace dex {
namespace {

float* row(const at::Tensor& t, int index) { return t.data_ptr<float>() + index * t.size(1); }

// One forward call: its buffers, shared by its layers, and the steps that touch each row by itself.
class Forward {
 public:
  Forward(const LayerShape& shape, const RowLayout& layout, at::Tensor& x, KvCache& cache,
          ThreadPool& pool)
      : s_(shape), layout_(layout), cache_(cache), pool_(pool), x_(x) {
    const std::int64_t rows = layout.rows(), q = s_.q_size(), kv = s_.kv_size();
    normed_ = at::empty({rows, s_.hidden});
    qkv_ = at::empty({rows, s_.qkv_size()});
    q_ = at::empty({rows, q});
    k_ = at::empty({rows, kv});
    v_ = at::empty({rows, kv});
    attended_ = at::empty({rows, q});
    gate_up_ = at::empty({rows, 2 * s_.intermediate});
    gated_ = at::empty({rows, s_.intermediate});
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
    pool_.run(ceil_div(rows, kSlice),
              [&](int i) { body(i * kSlice, std::min(kSlice, rows - i * kSlice)); });
  }

  void norm(const at::Tensor& x, const at::Tensor& weight, int first, int count) {
    cpu::rms_norm({.x = row(x, first),
                   .weight = weight.data_ptr<float>(),
                   .y = row(normed_, first),
                   .rows = count,
                   .size = int(s_.hidden),
                   .eps = s_.eps});
  }

  void rotate(float* x, int heads, int first, int count) {
    cpu::rope({.x = x,
               .positions = layout_.positions.data() + first,
               .inverse_frequencies = s_.inverse_frequencies.data(),
               .rows = count,
               .heads = heads,
               .head_dim = s_.head_dim});
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
    if (s_.qk_norm) {
      norm_heads(s_, w.q_norm, row(q_, first), count * s_.heads);
      norm_heads(s_, w.k_norm, row(k_, first), count * s_.kv_heads);
    }
    rotate(row(q_, first), s_.heads, first, count);
    rotate(row(k_, first), s_.kv_heads, first, count);
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
                         .heads = s_.heads,
                         .kv_heads = s_.kv_heads,
                         .head_dim = s_.head_dim,
                         .scale = s_.attention_scale,
                         .dtype = cache_.dtype()},
                        pool_);
  }

  void gate(int first, int count) {
    for (int i = first; i < first + count; ++i)
      cpu::silu_mul({.gate = row(gate_up_, i),
                     .up = row(gate_up_, i) + s_.intermediate,
                     .y = row(gated_, i),
                     .count = s_.intermediate});
  }

  void add(int first, int count) {
    cpu::axpy({.x = row(normed_, first), .y = row(x_, first), .count = count * x_.size(1)});
  }

  const LayerShape& s_;
  const RowLayout& layout_;
  KvCache& cache_;
  ThreadPool& pool_;
  at::Tensor& x_;
  at::Tensor normed_, qkv_, q_, k_, v_, attended_, gate_up_, gated_;
};

}  // namespace

void norm_heads(const LayerShape& shape, const at::Tensor& weight, float* x, int heads) {
  cpu::rms_norm({.x = x,
                 .weight = weight.data_ptr<float>(),
                 .y = x,
                 .rows = heads,
                 .size = shape.head_dim,
                 .eps = shape.eps});
}

void forward_layers(const Layers& layers, at::Tensor& x, const RowLayout& layout, KvCache& cache,
                    ThreadPool& pool) {
  if (layout.rows() == 0) return;
  Forward forward(layers.shape, layout, x, cache, pool);
  const auto& w = layers.weights;
  for (std::size_t i = 0; i < w.size(); ++i)
    forward.layer(w[i], i + 1 < w.size() ? &w[i + 1] : nullptr, int(i));
}

}  // namespace dex
