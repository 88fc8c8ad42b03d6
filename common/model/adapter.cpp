#include "common/model/adapter.h"

#include "kernels/row_ops.h"

namespace dex {

Adapter::Adapter(const AdapterWeights& w, float eps, Dtype dtype)
    : norm_(w.norm.contiguous()),
      up_bias_(w.up_bias.contiguous()),
      down_bias_(w.down_bias.contiguous()),
      up_(w.up, unquantized(dtype)),
      down_(w.down, unquantized(dtype)),
      alpha_(w.alpha.item<float>()),
      eps_(eps) {}

at::Tensor Adapter::induce(const at::Tensor& h, ThreadPool& pool) const {
  at::Tensor induced = h.clone(), normed = at::empty_like(h),
             inner = at::empty({h.size(0), up_.out()});
  float* z = inner.data_ptr<float>();
  cpu::rms_norm({.x = h.data_ptr<float>(),
                 .weight = norm_.data_ptr<float>(),
                 .y = normed.data_ptr<float>(),
                 .rows = int(h.size(0)),
                 .size = int(h.size(1)),
                 .eps = eps_});
  up_.multiply(normed, inner, pool, up_bias_);
  cpu::silu_mul({.gate = z, .y = z, .count = inner.numel()});
  down_.multiply(inner, normed, pool, down_bias_);
  cpu::axpy({.x = normed.data_ptr<float>(),
             .y = induced.data_ptr<float>(),
             .count = h.numel(),
             .scale = alpha_});
  return induced;
}

}  // namespace dex
