// An adapter followed by the final norm, forward and backward by hand: nothing of vocabulary size
// is kept for autograd. R rows, D hidden, M width. Any floating type; training uses float32.
#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "common/model/adapter.h"

namespace dex {

// What the backward pass needs of the forward pass.
struct AdapterTrace {
  at::Tensor unit_RD;           // h / RMS(h)
  at::Tensor before_RM;         // W1 (norm * unit) + b1
  at::Tensor act_RM;            // silu of it
  at::Tensor delta_RD;          // W2 act + b2
  at::Tensor induced_unit_RD;   // (h + alpha * delta) / RMS of it
  at::Tensor induced_scale_R1;  // 1 / RMS of it
};

AdapterTrace adapter_forward(const AdapterWeights& weights, const at::Tensor& h_RD, float eps);

// The gradient of every tensor of weights.named(), given that of `final_norm * induced_unit`. Adds
// into `gradient`.
void adapter_backward(const AdapterWeights& weights, const AdapterTrace& trace,
                      const at::Tensor& final_norm, const at::Tensor& grad_normed_RD,
                      AdapterWeights& gradient);

AdapterWeights zeros_like(const AdapterWeights& weights);

}  // namespace dex
