// The pass of training on the CPU. T tokens, D hidden, H heads, C KV heads, E head size, F
// intermediate.
//
// The products are libtorch's; what stands between two of them is one visit of each row, in float,
// and attention is a kernel.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "common/model/layers.h"
#include "common/model/tensors.h"
#include "kernels/causal_attention.h"
#include "kernels/row_ops.h"

namespace dex {
namespace {

struct Angles {
  at::Tensor sines, cosines;  // (T, E/2) f32
};

Angles angles_of(std::int64_t tokens, const std::vector<float>& inverse_frequencies) {
  const at::Tensor angles =
      at::outer(at::arange(tokens, at::kFloat), at::tensor(inverse_frequencies));
  return {angles.sin(), angles.cos()};
}

// Calls body(row, memory of `floats` floats) for each row.
template <class Body>
void each_row(std::int64_t rows, std::int64_t floats, const Body& body) {
  at::parallel_for(0, rows, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> memory(floats);
    for (std::int64_t row = begin; row < end; ++row) body(row, memory.data());
  });
}

// Parts of unequal length, taken as threads come free.
template <class Body>
void each_part(std::size_t parts, const Body& body) {
  std::atomic<std::size_t> next = 0;
  at::parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t, std::int64_t) {
    for (std::size_t part; (part = next++) < parts;) body(part);
  });
}

template <class T = std::byte>
T* row_of(const at::Tensor& x, std::int64_t row) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(x.data_ptr()) +
                              row * x.stride(0) * x.element_size());
}

class CausalPass {
 public:
  CausalPass(const LayerShape& shape, Dtype dtype, at::Tensor& x_TD)
      : s_(shape),
        dtype_(dtype),
        x_(x_TD),
        angles_(angles_of(x_TD.size(0), shape.inverse_frequencies)) {
    const std::int64_t rows = x_.size(0);
    normed_ = at::empty({rows, s_.hidden}, scalar_type(dtype));
    attended_ = at::empty({rows, s_.q_size()}, scalar_type(dtype));
    gated_ = at::empty({rows, s_.intermediate}, scalar_type(dtype));
    plan_attention();
  }

  void layers(const std::vector<LayerWeights>& layers) {
    each_row(x_.size(0), s_.hidden,
             [&](std::int64_t r, float* memory) { norm(r, layers.front().input_norm, memory); });
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const LayerWeights& w = layers[i];
      attend(w, at::linear(normed_, w.qkv.plain()));
      add(at::linear(attended_, w.out.plain()), &w.post_norm);
      gate(at::linear(normed_, w.gate_up.plain()));
      add(at::linear(gated_, w.down.plain()),
          i + 1 < layers.size() ? &layers[i + 1].input_norm : nullptr);
    }
  }

 private:
  struct Queries {     // of one KV head
    std::size_t head;  // of heads_
    int first, end;
  };

  // Parts whose scores stay in a near cache; the longest first.
  void plan_attention() {
    constexpr std::ptrdiff_t kScores = 48 << 10, kMostRows = 8 * kCausalRows;
    const CausalAttention shape{.out = attended_.data_ptr(),
                                .rows = int(x_.size(0)),
                                .heads = s_.heads,
                                .kv_heads = s_.kv_heads,
                                .head_dim = s_.head_dim,
                                .scale = s_.attention_scale,
                                .dtype = dtype_};
    const auto bytes = std::int64_t(cpu::causal_packed_bytes(shape));
    packed_ = at::empty({s_.kv_heads, bytes}, at::kByte);  // libtorch aligns to 64 bytes
    const int step = int(std::clamp<std::ptrdiff_t>(
        kScores / shape.rows / kCausalRows * kCausalRows, kCausalRows, kMostRows));
    for (int head = 0; head < s_.kv_heads; ++head) {
      for (int first = 0; first < shape.rows; first += step)
        queries_.push_back({heads_.size(), first, std::min(shape.rows, first + step)});
      CausalAttention& p = heads_.emplace_back(shape);
      p.kv_head = head;
      p.packed = row_of(packed_, head);
    }
    std::stable_sort(queries_.begin(), queries_.end(),
                     [](const Queries& a, const Queries& b) { return a.end > b.end; });
  }

  void attend(const LayerWeights& w, const at::Tensor& qkv) {
    const int heads = s_.heads, kv_heads = s_.kv_heads, size = s_.head_dim;
    each_row(qkv.size(0), std::int64_t{heads + kv_heads} * size, [&](std::int64_t r, float* q) {
      float* k = q + std::ptrdiff_t{heads} * size;
      widen(row_of(qkv, r), q, std::int64_t{heads + kv_heads} * size, dtype_);
      if (s_.qk_norm) {
        norm_heads(s_, w.q_norm, q, heads);
        norm_heads(s_, w.k_norm, k, kv_heads);
      }
      cpu::rotate({.x = q,
                   .sines = row_of<float>(angles_.sines, r),
                   .cosines = row_of<float>(angles_.cosines, r),
                   .heads = heads + kv_heads,
                   .head_dim = size});
      convert(q, row_of(qkv, r), std::int64_t{heads + kv_heads} * size, dtype_);
    });
    each_part(heads_.size(), [&](std::size_t i) {
      heads_[i].qkv = qkv.data_ptr();
      cpu::pack_causal(heads_[i]);
    });
    each_part(queries_.size(), [&](std::size_t i) {
      cpu::attend_causally(heads_[queries_[i].head], queries_[i].first, queries_[i].end);
    });
  }

  void gate(const at::Tensor& gate_up) {
    const std::int64_t size = s_.intermediate;
    each_row(gate_up.size(0), 2 * size, [&](std::int64_t r, float* memory) {
      widen(row_of(gate_up, r), memory, 2 * size, dtype_);
      cpu::silu_mul({.gate = memory, .up = memory + size, .y = memory, .count = size});
      convert(memory, row_of(gated_, r), size, dtype_);
    });
  }

  // To the residual rows, which are normed for what follows.
  void add(const at::Tensor& product, const at::Tensor* weight) {
    each_row(product.size(0), s_.hidden, [&](std::int64_t r, float* memory) {
      widen(row_of(product, r), memory, s_.hidden, dtype_);
      cpu::axpy({.x = memory, .y = row_of<float>(x_, r), .count = s_.hidden});
      if (weight) norm(r, *weight, memory);
    });
  }

  void norm(std::int64_t r, const at::Tensor& weight, float* memory) {
    cpu::rms_norm({.x = row_of<float>(x_, r),
                   .weight = weight.data_ptr<float>(),
                   .y = memory,
                   .rows = 1,
                   .size = int(s_.hidden),
                   .eps = s_.eps});
    convert(memory, row_of(normed_, r), s_.hidden, dtype_);
  }

  const LayerShape& s_;
  Dtype dtype_;
  at::Tensor& x_;
  Angles angles_;
  at::Tensor normed_, attended_, gated_, packed_;
  std::vector<CausalAttention> heads_;  // a KV head each
  std::vector<Queries> queries_;
};

}  // namespace

at::Tensor forward_layers_causal(const Layers& layers, const at::Tensor& x_TD) {
  at::Tensor x = x_TD.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
  if (x.size(0) > 0) CausalPass(layers.shape, layers.dtype, x).layers(layers.weights);
  return x;
}

}  // namespace dex
