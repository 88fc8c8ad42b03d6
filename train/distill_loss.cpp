#include "train/distill_loss.h"

#include <algorithm>

#include "train/adapter_gradient.h"

namespace dex {
namespace {

at::Tensor normed(const at::Tensor& unit_RD, const Head& head) { return unit_RD * head.norm_weight(); }

at::Tensor log_probabilities(const at::Tensor& normed_RD, const Head& head, double tau) {
  const at::Tensor logits_RV = at::linear(normed_RD.to(head.weight().scalar_type()), head.weight()).to(at::kFloat);
  return at::log_softmax(tau == 1 ? logits_RV : logits_RV / tau, -1);
}

}  // namespace

DistillLoss::DistillLoss(const Head& head, double tau, std::int64_t chunk_bytes)
    : head_(head), tau_(tau),
      chunk_rows_(std::max<std::int64_t>(1, chunk_bytes / (std::int64_t{sizeof(float)} * head.vocab()))) {}

DistillResult DistillLoss::add_gradients(const std::vector<at::Tensor>& h_RD, const at::Tensor& final_RD,
                                         const std::vector<AdapterWeights>& weights, std::int64_t global_rows,
                                         std::vector<AdapterWeights>& gradients) const {
  const std::size_t depths = h_RD.size();
  const std::int64_t rows = final_RD.size(0);
  DistillResult result{std::vector<double>(depths), std::vector<std::int64_t>(depths)};
  if (rows == 0) return result;

  std::vector<AdapterTrace> traces;
  std::vector<at::Tensor> grads_RD;
  for (std::size_t k = 0; k < depths; ++k) {
    traces.push_back(adapter_forward(weights[k], h_RD[k], head_.eps()));
    grads_RD.push_back(at::empty_like(h_RD[k]));
  }
  const at::Tensor teacher_RD = head_.norm(final_RD);
  // d/dz of tau^2 KL is tau (q - p).
  const double scale = tau_ / (static_cast<double>(depths) * static_cast<double>(global_rows));
  for (std::int64_t begin = 0; begin < rows; begin += chunk_rows_) {
    const std::int64_t end = std::min(rows, begin + chunk_rows_);
    const at::Tensor log_p = log_probabilities(teacher_RD.slice(0, begin, end), head_, tau_), p = log_p.exp();
    const at::Tensor best = log_p.argmax(-1);
    for (std::size_t k = 0; k < depths; ++k) {
      const at::Tensor log_q = log_probabilities(normed(traces[k].induced_unit_RD.slice(0, begin, end), head_), head_, tau_);
      result.kl[k] += tau_ * tau_ * (p * (log_p - log_q)).sum(-1).sum(0, false, at::kDouble).item<double>();
      result.agreements[k] += log_q.argmax(-1).eq(best).sum().item<std::int64_t>();
      const at::Tensor difference = (log_q.exp() - p).to(head_.weight().scalar_type());
      grads_RD[k].slice(0, begin, end).copy_(at::mm(difference, head_.weight()).to(at::kFloat).mul_(scale));
    }
  }
  for (std::size_t k = 0; k < depths; ++k)
    adapter_backward(weights[k], traces[k], head_.norm_weight(), grads_RD[k], gradients[k]);
  return result;
}

}  // namespace dex
