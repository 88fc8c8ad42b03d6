#include "common/adapter.h"

#include "common/tensors.h"
#include "kernels/linear.h"
#include "kernels/row_ops.h"

namespace dex {

Adapter::Adapter(const AdapterWeights& w, float eps, Dtype dtype)
    : norm_(w.norm.contiguous()), up_(w.up.to(scalar_type(dtype)).contiguous()), up_bias_(w.up_bias.contiguous()),
      down_(w.down.to(scalar_type(dtype)).contiguous()), down_bias_(w.down_bias.contiguous()),
      alpha_(w.alpha.item<float>()), eps_(eps), dtype_(dtype) {}

at::Tensor Adapter::induce(const at::Tensor& h, Workers& workers) const {
  const int rows = static_cast<int>(h.size(0)), hidden = static_cast<int>(h.size(1)), width = static_cast<int>(up_.size(0));
  at::Tensor induced = h.clone(), normed = at::empty_like(h), inner = at::empty({rows, width});
  float *n = normed.data_ptr<float>(), *z = inner.data_ptr<float>();
  cpu::rms_norm({.x = h.data_ptr<float>(), .weight = norm_.data_ptr<float>(), .y = n, .rows = rows, .size = hidden,
                 .eps = eps_});
  cpu::linear({.x = n, .weight = up_.data_ptr(), .bias = up_bias_.data_ptr<float>(), .y = z, .rows = rows, .in = hidden,
               .out = width, .dtype = dtype_}, workers);
  cpu::silu_multiply({.gate = z, .y = z, .count = inner.numel()});
  cpu::linear({.x = z, .weight = down_.data_ptr(), .bias = down_bias_.data_ptr<float>(), .y = n, .rows = rows, .in = width,
               .out = hidden, .dtype = dtype_}, workers);
  cpu::add_scaled({.x = n, .y = induced.data_ptr<float>(), .count = h.numel(), .scale = alpha_});
  return induced;
}

}  // namespace dex
