#include "train/loss/adapter_gradient.h"

namespace dex {
namespace {

at::Tensor inverse_rms(const at::Tensor& x_RD, float eps) {
  return (x_RD.square().mean(-1, /*keepdim=*/true) + eps).rsqrt();
}

}  // namespace

AdapterTrace adapter_forward(const AdapterWeights& w, const at::Tensor& h_RD, float eps) {
  AdapterTrace t;
  t.unit_RD = h_RD * inverse_rms(h_RD, eps);
  t.before_RM = at::addmm(w.up_bias, t.unit_RD * w.norm, w.up.t());
  t.act_RM = at::silu(t.before_RM);
  t.delta_RD = at::addmm(w.down_bias, t.act_RM, w.down.t());
  const at::Tensor induced = at::addcmul(h_RD, t.delta_RD, w.alpha);
  t.induced_scale_R1 = inverse_rms(induced, eps);
  t.induced_unit_RD = induced * t.induced_scale_R1;
  return t;
}

void adapter_backward(const AdapterWeights& w, const AdapterTrace& t, const at::Tensor& final_norm,
                      const at::Tensor& grad_normed_RD, AdapterWeights& g) {
  // u = x / RMS(x):  dx = (du - u * mean(du * u)) / RMS(x)
  const at::Tensor du = grad_normed_RD * final_norm;
  const at::Tensor dx =
      (du - t.induced_unit_RD * (du * t.induced_unit_RD).mean(-1, true)) * t.induced_scale_R1;

  // one number for all rows: sum it widely
  g.alpha.add_((dx * t.delta_RD).sum(at::kDouble).to(dx.scalar_type()));
  const at::Tensor ddelta = dx * w.alpha;
  g.down.addmm_(ddelta.t(), t.act_RM);
  g.down_bias.add_(ddelta.sum(0));
  const at::Tensor dbefore = at::silu_backward(at::mm(ddelta, w.down), t.before_RM);
  g.up.addmm_(dbefore.t(), t.unit_RD * w.norm);
  g.up_bias.add_(dbefore.sum(0));
  g.norm.add_((at::mm(dbefore, w.up) * t.unit_RD).sum(0));
}

AdapterWeights zeros_like(const AdapterWeights& w) {
  return {.norm = at::zeros_like(w.norm),
          .up = at::zeros_like(w.up),
          .up_bias = at::zeros_like(w.up_bias),
          .down = at::zeros_like(w.down),
          .down_bias = at::zeros_like(w.down_bias),
          .alpha = at::zeros_like(w.alpha)};
}

}  // namespace dex
