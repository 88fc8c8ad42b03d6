#include "train/adapter_gradient.h"

namespace dex {
namespace {

at::Tensor inverse_rms(const at::Tensor& x_RD, float eps) {
  return (x_RD.square().mean(-1, /*keepdim=*/true) + eps).rsqrt();
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType compute) {
  return at::mm(a.to(compute), b.to(compute)).to(a.scalar_type());
}

}  // namespace

AdapterTrace adapter_forward(const AdapterWeights& w, const at::Tensor& h_RD, float eps,
                             std::optional<at::ScalarType> compute) {
  AdapterTrace t;
  t.compute = compute.value_or(h_RD.scalar_type());
  t.unit_RD = h_RD * inverse_rms(h_RD, eps);
  t.before_RM = product(t.unit_RD * w.norm, w.up.t(), t.compute).add_(w.up_bias);
  t.act_RM = at::silu(t.before_RM);
  t.delta_RD = product(t.act_RM, w.down.t(), t.compute).add_(w.down_bias);
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

  g.alpha.add_(
      (dx * t.delta_RD).sum(at::kDouble).to(dx.scalar_type()));  // one number for all rows: sum it widely
  const at::Tensor ddelta = dx * w.alpha;
  g.down.add_(product(ddelta.t(), t.act_RM, t.compute));
  g.down_bias.add_(ddelta.sum(0));
  const at::Tensor dbefore = at::silu_backward(product(ddelta, w.down, t.compute), t.before_RM);
  g.up.add_(product(dbefore.t(), t.unit_RD * w.norm, t.compute));
  g.up_bias.add_(dbefore.sum(0));
  g.norm.add_((product(dbefore, w.up, t.compute) * t.unit_RD).sum(0));
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
