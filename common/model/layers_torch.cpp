// The pass of training with libtorch's operators alone, for GPUs. T tokens, D hidden, H heads, C KV
// heads, E head size, F intermediate.
//
// Rows are float32 and narrowed to the weights' type where the CPU's pass narrows them.
#include <ATen/ATen.h>

#include "common/model/layers.h"
#include "common/model/tensors.h"

namespace dex {
namespace {

class TorchPass {
 public:
  TorchPass(const LayerShape& shape, Dtype dtype, const at::Tensor& x_TD)
      : s_(shape),
        type_(scalar_type(dtype)),
        x_(x_TD.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true)) {
    const at::Tensor positions = at::arange(x_.size(0), x_.options()),
                     angles =
                         at::outer(positions, at::tensor(s_.inverse_frequencies).to(x_.device()))
                             .unsqueeze(1);
    sines_ = angles.sin();
    cosines_ = angles.cos();
  }

  void layer(const LayerWeights& w) {
    const at::Tensor qkv = at::linear(normed(x_, w.input_norm), w.qkv.plain());
    x_.add_(at::linear(attended(w, qkv), w.out.plain()));
    const at::Tensor gate_up =
        at::linear(normed(x_, w.post_norm), w.gate_up.plain()).to(at::kFloat);
    const auto halves = gate_up.chunk(2, -1);
    x_.add_(at::linear((at::silu(halves[0]) * halves[1]).to(type_), w.down.plain()));
  }
  at::Tensor rows() && { return std::move(x_); }

 private:
  at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const {
    return at::rms_norm(x, weight.sizes(), weight, s_.eps);
  }
  at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) const {
    return norm(x, weight).to(type_);
  }

  // (T, heads, E) of any float type, to the weights' type
  at::Tensor rotated(const at::Tensor& heads, const at::Tensor& weight) const {
    const at::Tensor wide = heads.to(at::kFloat), x = s_.qk_norm ? norm(wide, weight) : wide;
    const auto halves = x.chunk(2, -1);
    return at::cat({halves[0] * cosines_ - halves[1] * sines_,
                    halves[1] * cosines_ + halves[0] * sines_},
                   -1)
        .to(type_);
  }

  at::Tensor attended(const LayerWeights& w, const at::Tensor& qkv) const {
    const auto parts = qkv.view({qkv.size(0), -1, s_.head_dim})
                           .split_with_sizes({s_.heads, s_.kv_heads, s_.kv_heads}, 1);
    const auto of_heads = [](const at::Tensor& x) {
      return x.transpose(0, 1).unsqueeze(0);
    };  // (1, heads, T, E)
    // A KV head for each query head: float32 with shared ones would write out all scores.
    const auto shared = [&](const at::Tensor& x) {
      return of_heads(x).repeat_interleave(s_.heads / s_.kv_heads, 1);
    };
    const at::Tensor out = at::scaled_dot_product_attention(
        of_heads(rotated(parts[0], w.q_norm)), shared(rotated(parts[1], w.k_norm)),
        shared(parts[2]),
        /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true, s_.attention_scale);
    return out.squeeze(0).transpose(0, 1).reshape({qkv.size(0), -1});
  }

  const LayerShape& s_;
  at::ScalarType type_;
  at::Tensor x_, sines_, cosines_;  // (T, D); (T, 1, E/2)
};

}  // namespace

at::Tensor forward_layers_by_torch(const Layers& layers, const at::Tensor& x_TD) {
  TorchPass pass(layers.shape, layers.dtype, x_TD);
  if (x_TD.size(0) > 0)
    for (const LayerWeights& w : layers.weights) pass.layer(w);
  return std::move(pass).rows();
}

}  // namespace dex
