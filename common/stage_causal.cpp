// Stage::forward_causal. T tokens of all sequences, S of one, D hidden, H heads, C KV heads, E head size, F intermediate.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "common/error.h"
#include "common/stage.h"
#include "common/tensors.h"
#include "kernels/row_ops.h"

namespace dex {
namespace {

// Of whole rows, in `type`: one pass instead of an operator after the other.
at::Tensor rms_norm_rows(const at::Tensor& x_TD, const at::Tensor& weight, float eps, Dtype type) {
  const std::int64_t rows = x_TD.size(0), size = x_TD.size(1);
  at::Tensor y_TD = at::empty({rows, size}, scalar_type(type));
  const float* x = x_TD.data_ptr<float>();
  auto* y = static_cast<std::byte*>(y_TD.data_ptr());
  at::parallel_for(0, rows, 64, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> normed(static_cast<std::size_t>(size));
    for (std::int64_t row = begin; row < end; ++row) {
      cpu::rms_norm({.x = x + row * size, .weight = weight.data_ptr<float>(), .y = normed.data(), .rows = 1,
                     .size = static_cast<int>(size), .eps = eps});
      convert(normed.data(), y + row * size * size_of(type), size, type);
    }
  });
  return y_TD;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, float eps) {
  return x * (x.square().mean(-1, /*keepdim=*/true) + eps).rsqrt() * weight;
}

struct Angles {
  at::Tensor cosine, sine;  // (T, 1, E/2) f32
};

// Positions restart at 0 in every sequence.
Angles angles_of(std::span<const std::int64_t> begin, const std::vector<float>& inverse_frequencies) {
  std::vector<at::Tensor> positions;
  for (std::size_t s = 0; s + 1 < begin.size(); ++s) positions.push_back(at::arange(begin[s + 1] - begin[s], at::kFloat));
  const at::Tensor frequencies = at::tensor(inverse_frequencies);
  const at::Tensor angles = at::outer(at::cat(positions), frequencies).unsqueeze(1);
  return {angles.cos(), angles.sin()};
}

at::Tensor rotate(const at::Tensor& x_THE, const Angles& angles) {
  const auto halves = x_THE.chunk(2, -1);
  return at::cat({halves[0] * angles.cosine - halves[1] * angles.sine, halves[1] * angles.cosine + halves[0] * angles.sine}, -1);
}

// (S, H, E) each, K and V already repeated to H heads.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto heads_first = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
  const at::Tensor out = at::scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), {}, 0.0,
                                                          /*is_causal=*/true);
  return out.squeeze(0).transpose(0, 1);
}

at::Tensor attention(const at::Tensor& qkv, const LayerWeights& w, const ModelConfig& c, const Angles& angles,
                     std::span<const std::int64_t> begin) {
  const std::int64_t tokens = qkv.size(0), heads = c.num_heads, kv_heads = c.num_kv_heads, size = c.head_dim;
  const auto parts = qkv.to(at::kFloat).split_with_sizes({heads * size, kv_heads * size, kv_heads * size}, -1);
  at::Tensor q = parts[0].reshape({tokens, heads, size}), k = parts[1].reshape({tokens, kv_heads, size});
  if (c.qk_norm) {
    q = rms_norm(q, w.q_norm, c.rms_norm_eps);
    k = rms_norm(k, w.k_norm, c.rms_norm_eps);
  }
  const auto type = qkv.scalar_type();
  q = rotate(q, angles).to(type);
  const auto repeated = [&](const at::Tensor& x) { return x.to(type).repeat_interleave(heads / kv_heads, 1); };
  k = repeated(rotate(k, angles));
  const at::Tensor v = repeated(parts[2].reshape({tokens, kv_heads, size}));
  std::vector<at::Tensor> attended;
  for (std::size_t s = 0; s + 1 < begin.size(); ++s)
    if (begin[s + 1] > begin[s])
      attended.push_back(attend(q.slice(0, begin[s], begin[s + 1]), k.slice(0, begin[s], begin[s + 1]),
                                v.slice(0, begin[s], begin[s + 1])));
  return at::cat(attended).reshape({tokens, heads * size});
}

}  // namespace

at::Tensor Stage::forward_causal(const at::Tensor& x_TD, std::span<const std::int64_t> begin) const {
  require(!begin.empty() && begin.front() == 0 && begin.back() == x_TD.size(0), ExitCode::bug,
          "the sequences do not cover the {} rows", x_TD.size(0));
  at::Tensor x = x_TD.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  if (x.size(0) == 0) return x;
  const auto type = scalar_type(dtype_);
  const Angles angles = angles_of(begin, inverse_frequencies_);
  for (const LayerWeights& w : layers_) {
    const at::Tensor normed = rms_norm_rows(x, w.input_norm, config_.rms_norm_eps, dtype_);
    const at::Tensor attended = attention(at::linear(normed, w.qkv.plain()), w, config_, angles, begin);
    x.add_(at::linear(attended.to(type), w.out.plain()));
    const at::Tensor inner = rms_norm_rows(x, w.post_norm, config_.rms_norm_eps, dtype_);
    const auto gate_up = at::linear(inner, w.gate_up.plain()).chunk(2, -1);
    x.add_(at::linear(at::silu(gate_up[0]).mul_(gate_up[1]), w.down.plain()));
  }
  return x;
}

}  // namespace dex
