// Stage::forward_causal. T tokens of all sequences, D hidden, H heads, C KV heads, E head size, F
// intermediate.
//
// The products are libtorch's; what stands between two of them is one visit of each row, in float, and
// attention is a kernel.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "common/error.h"
#include "common/stage.h"
#include "common/tensors.h"
#include "kernels/causal_attention.h"
#include "kernels/row_ops.h"

namespace dex {
namespace {

struct Angles {
  at::Tensor sines, cosines;  // (T, E/2) f32
};

// Positions restart at 0 in every sequence.
Angles angles_of(std::span<const std::int64_t> begin, const std::vector<float>& inverse_frequencies) {
  std::vector<at::Tensor> positions;
  for (std::size_t s = 0; s + 1 < begin.size(); ++s)
    positions.push_back(at::arange(begin[s + 1] - begin[s], at::kFloat));
  const at::Tensor angles = at::outer(at::cat(positions), at::tensor(inverse_frequencies));
  return {angles.sin(), angles.cos()};
}

// Calls body(row, memory of `floats` floats) for each row.
template <class Body>
void each_row(std::int64_t rows, std::int64_t floats, const Body& body) {
  at::parallel_for(0, rows, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> memory(static_cast<std::size_t>(floats));
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
  return reinterpret_cast<T*>(static_cast<std::byte*>(x.data_ptr()) + row * x.stride(0) * x.element_size());
}

class CausalPass {
 public:
  CausalPass(const ModelConfig& config, Dtype dtype, at::Tensor& x_TD, std::span<const std::int64_t> begin,
             const std::vector<float>& inverse_frequencies)
      : c_(config), dtype_(dtype), x_(x_TD), begin_(begin), angles_(angles_of(begin, inverse_frequencies)) {
    const std::int64_t rows = x_.size(0);
    normed_ = at::empty({rows, c_.hidden_size}, scalar_type(dtype));
    attended_ = at::empty({rows, std::int64_t{c_.num_heads} * c_.head_dim}, scalar_type(dtype));
    gated_ = at::empty({rows, c_.intermediate_size}, scalar_type(dtype));
    plan_attention();
  }

  void layers(const std::vector<LayerWeights>& layers) {
    each_row(x_.size(0), c_.hidden_size,
             [&](std::int64_t r, float* memory) { norm(r, layers.front().input_norm, memory); });
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const LayerWeights& w = layers[i];
      attend(w, at::linear(normed_, w.qkv.plain()));
      add(at::linear(attended_, w.out.plain()), &w.post_norm);
      gate(at::linear(normed_, w.gate_up.plain()));
      add(at::linear(gated_, w.down.plain()), i + 1 < layers.size() ? &layers[i + 1].input_norm : nullptr);
    }
  }

 private:
  struct KvHead {  // a KV head of a sequence
    CausalAttention p;
    std::int64_t begin;
    std::ptrdiff_t packed_at;
  };
  struct Queries {     // of one KV head
    std::size_t head;  // of heads_
    int first, end;
  };

  // Parts whose scores stay in a near cache; the longest first.
  void plan_attention() {
    constexpr std::ptrdiff_t kScores = 48 << 10, kMostRows = 8 * kCausalRows;
    std::ptrdiff_t bytes = 0;
    for (std::size_t s = 0; s + 1 < begin_.size(); ++s)
      for (int head = 0; head < c_.num_kv_heads; ++head) {
        CausalAttention p{.rows = static_cast<int>(begin_[s + 1] - begin_[s]),
                          .heads = c_.num_heads,
                          .kv_heads = c_.num_kv_heads,
                          .head_dim = c_.head_dim,
                          .kv_head = head,
                          .scale = 1.0f / std::sqrt(static_cast<float>(c_.head_dim)),
                          .dtype = dtype_};
        if (p.rows == 0) continue;
        p.out = row_of(attended_, begin_[s]);
        const int step = static_cast<int>(
            std::clamp<std::ptrdiff_t>(kScores / p.rows / kCausalRows * kCausalRows, kCausalRows, kMostRows));
        for (int first = 0; first < p.rows; first += step)
          queries_.push_back({heads_.size(), first, std::min(p.rows, first + step)});
        heads_.push_back({p, begin_[s], bytes});
        bytes += static_cast<std::ptrdiff_t>(cpu::causal_packed_bytes(p));
      }
    std::stable_sort(queries_.begin(), queries_.end(),
                     [](const Queries& a, const Queries& b) { return a.end > b.end; });
    packed_ = at::empty({bytes}, at::kByte);  // libtorch aligns to 64 bytes
    for (KvHead& head : heads_) head.p.packed = row_of(packed_, head.packed_at);
  }

  void attend(const LayerWeights& w, const at::Tensor& qkv) {
    const int heads = c_.num_heads, kv_heads = c_.num_kv_heads, size = c_.head_dim;
    each_row(qkv.size(0), std::int64_t{heads + kv_heads} * size, [&](std::int64_t r, float* q) {
      float* k = q + std::ptrdiff_t{heads} * size;
      widen(row_of(qkv, r), q, std::int64_t{heads + kv_heads} * size, dtype_);
      if (c_.qk_norm) {
        norm_heads(q, w.q_norm, heads);
        norm_heads(k, w.k_norm, kv_heads);
      }
      cpu::rotate({.x = q,
                   .sines = row_of<float>(angles_.sines, r),
                   .cosines = row_of<float>(angles_.cosines, r),
                   .heads = heads + kv_heads,
                   .head_dim = size});
      convert(q, row_of(qkv, r), std::int64_t{heads + kv_heads} * size, dtype_);
    });
    each_part(heads_.size(), [&](std::size_t i) {
      heads_[i].p.qkv = row_of(qkv, heads_[i].begin);
      cpu::pack_causal(heads_[i].p);
    });
    each_part(queries_.size(), [&](std::size_t i) {
      cpu::attend_causally(heads_[queries_[i].head].p, queries_[i].first, queries_[i].end);
    });
  }

  void norm_heads(float* x, const at::Tensor& weight, int heads) const {
    cpu::rms_norm({.x = x,
                   .weight = weight.data_ptr<float>(),
                   .y = x,
                   .rows = heads,
                   .size = c_.head_dim,
                   .eps = c_.rms_norm_eps});
  }

  void gate(const at::Tensor& gate_up) {
    const std::int64_t size = c_.intermediate_size;
    each_row(gate_up.size(0), 2 * size, [&](std::int64_t r, float* memory) {
      widen(row_of(gate_up, r), memory, 2 * size, dtype_);
      cpu::silu_multiply({.gate = memory, .up = memory + size, .y = memory, .count = size});
      convert(memory, row_of(gated_, r), size, dtype_);
    });
  }

  // To the residual rows, which are normed for what follows.
  void add(const at::Tensor& product, const at::Tensor* weight) {
    each_row(product.size(0), c_.hidden_size, [&](std::int64_t r, float* memory) {
      widen(row_of(product, r), memory, c_.hidden_size, dtype_);
      cpu::add_scaled({.x = memory, .y = row_of<float>(x_, r), .count = c_.hidden_size});
      if (weight) norm(r, *weight, memory);
    });
  }

  void norm(std::int64_t r, const at::Tensor& weight, float* memory) {
    cpu::rms_norm({.x = row_of<float>(x_, r),
                   .weight = weight.data_ptr<float>(),
                   .y = memory,
                   .rows = 1,
                   .size = static_cast<int>(c_.hidden_size),
                   .eps = c_.rms_norm_eps});
    convert(memory, row_of(normed_, r), c_.hidden_size, dtype_);
  }

  const ModelConfig& c_;
  Dtype dtype_;
  at::Tensor& x_;
  std::span<const std::int64_t> begin_;
  Angles angles_;
  at::Tensor normed_, attended_, gated_, packed_;
  std::vector<KvHead> heads_;
  std::vector<Queries> queries_;
};

}  // namespace

at::Tensor Stage::forward_causal(const at::Tensor& x_TD, std::span<const std::int64_t> begin) const {
  require(!begin.empty() && begin.front() == 0 && begin.back() == x_TD.size(0), ExitCode::bug,
          "the sequences do not cover the {} rows", x_TD.size(0));
  at::Tensor x = x_TD.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
  if (x.size(0) > 0) CausalPass(config_, dtype_, x, begin, inverse_frequencies_).layers(layers_);
  return x;
}

}  // namespace dex
