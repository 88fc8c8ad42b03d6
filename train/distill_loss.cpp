#include "train/distill_loss.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/distill.h"
#include "train/adapter_gradient.h"

namespace dex {
namespace {

constexpr std::int64_t kLeastRows = 64;  // fewer make the products slow

at::Tensor logits_of(const at::Tensor& normed_RD, const Head& head) {
  return at::linear(normed_RD.to(head.matrix().plain().scalar_type()), head.matrix().plain());
}

// Per row: KL, whether the best tokens agree; and softmax(student) - softmax(teacher) in the student's place.
struct RowLosses {
  std::vector<float> kl;
  std::vector<std::uint8_t> agrees;
};

RowLosses distill(const at::Tensor& teacher_RV, at::Tensor& student_RV, double tau, Dtype dtype) {
  const std::int64_t rows = teacher_RV.size(0), vocab = teacher_RV.size(1);
  RowLosses losses{std::vector<float>(static_cast<std::size_t>(rows)), std::vector<std::uint8_t>(static_cast<std::size_t>(rows))};
  at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    const auto row = [&](const at::Tensor& x) { return static_cast<std::byte*>(x.data_ptr()) + begin * vocab * size_of(dtype); };
    cpu::distill_rows({.teacher = row(teacher_RV), .student = row(student_RV), .difference = row(student_RV), .kl = losses.kl.data() + begin,
                       .agrees = losses.agrees.data() + begin, .rows = static_cast<int>(end - begin), .vocab = static_cast<int>(vocab),
                       .inverse_tau = static_cast<float>(1 / tau), .dtype = dtype});
  });
  return losses;
}

}  // namespace

DistillLoss::DistillLoss(const Head& head, double tau, std::int64_t chunk_bytes)
    : head_(head), tau_(tau),
      chunk_rows_(std::max(kLeastRows, chunk_bytes / (std::int64_t{size_of(head.dtype())} * head.vocab()))) {}

DistillResult DistillLoss::add_gradients(const std::vector<at::Tensor>& h_RD, const at::Tensor& final_RD,
                                         const std::vector<AdapterWeights>& weights, std::int64_t global_rows,
                                         std::vector<AdapterWeights>& gradients, std::int64_t global_depths) const {
  const std::size_t depths = h_RD.size();
  if (global_depths == 0) global_depths = static_cast<std::int64_t>(depths);
  const std::int64_t rows = final_RD.size(0);
  DistillResult result{std::vector<double>(depths), std::vector<std::int64_t>(depths)};
  if (rows == 0) return result;

  std::vector<AdapterTrace> traces;
  std::vector<at::Tensor> grads_RD;
  for (std::size_t k = 0; k < depths; ++k) {
    traces.push_back(adapter_forward(weights[k], h_RD[k], head_.eps()));
    grads_RD.push_back(at::empty_like(h_RD[k]));
  }
  const at::Tensor teacher_RD = head_.norm(final_RD.contiguous());
  // d/dz of tau^2 KL is tau (q - p).
  const double scale = tau_ / (static_cast<double>(global_depths) * static_cast<double>(global_rows));
  for (std::int64_t begin = 0; begin < rows; begin += chunk_rows_) {
    const std::int64_t end = std::min(rows, begin + chunk_rows_);
    const at::Tensor teacher_RV = logits_of(teacher_RD.slice(0, begin, end), head_);
    for (std::size_t k = 0; k < depths; ++k) {
      at::Tensor student_RV = logits_of(traces[k].induced_unit_RD.slice(0, begin, end) * head_.norm_weight(), head_);
      const RowLosses losses = distill(teacher_RV, student_RV, tau_, head_.dtype());
      for (float kl : losses.kl) result.kl[k] += tau_ * tau_ * static_cast<double>(kl);
      for (std::uint8_t agrees : losses.agrees) result.agreements[k] += agrees;
      grads_RD[k].slice(0, begin, end).copy_(at::mm(student_RV, head_.matrix().plain()).to(at::kFloat).mul_(scale));
    }
  }
  for (std::size_t k = 0; k < depths; ++k)
    adapter_backward(weights[k], traces[k], head_.norm_weight(), grads_RD[k], gradients[k]);
  return result;
}

}  // namespace dex
