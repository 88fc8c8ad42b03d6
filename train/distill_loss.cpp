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

// Per row of a chunk: KL, whether the best tokens agree; and softmax(student) - softmax(teacher) in the
// student's place.
struct ExitChunk {
  at::Tensor student_RV;
  std::vector<float> kl;
  std::vector<std::uint8_t> agrees;

  explicit ExitChunk(at::Tensor logits_RV)
      : student_RV(std::move(logits_RV)),
        kl(static_cast<std::size_t>(student_RV.size(0))),
        agrees(kl.size()) {}

  DistillRows rows(const at::Tensor& teacher_RV, double tau, Dtype dtype, std::int64_t begin,
                   std::int64_t end) {
    const std::int64_t vocab = teacher_RV.size(1);
    const auto row = [&](const at::Tensor& x) {
      return static_cast<std::byte*>(x.data_ptr()) + begin * vocab * size_of(dtype);
    };
    return {.teacher = row(teacher_RV),
            .student = row(student_RV),
            .difference = row(student_RV),
            .kl = kl.data() + begin,
            .agrees = agrees.data() + begin,
            .rows = static_cast<int>(end - begin),
            .vocab = static_cast<int>(vocab),
            .inverse_tau = static_cast<float>(1 / tau),
            .dtype = dtype};
  }
};

void distill(const at::Tensor& teacher_RV, std::vector<ExitChunk>& exits, double tau, Dtype dtype) {
  at::parallel_for(0, teacher_RV.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<DistillRows> students;
    for (ExitChunk& exit : exits) students.push_back(exit.rows(teacher_RV, tau, dtype, begin, end));
    cpu::distill_rows(students);
  });
}

}  // namespace

DistillLoss::DistillLoss(const Head& head, double tau, std::int64_t chunk_bytes)
    : head_(head),
      tau_(tau),
      chunk_rows_(std::max(kLeastRows, chunk_bytes / (std::int64_t{size_of(head.dtype())} * head.vocab()))) {}

DistillResult DistillLoss::add_gradients(const std::vector<at::Tensor>& h_RD, const at::Tensor& final_RD,
                                         const std::vector<AdapterWeights>& weights, std::int64_t global_rows,
                                         std::vector<AdapterWeights>& gradients,
                                         std::int64_t global_depths) const {
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
    std::vector<ExitChunk> exits;
    for (const AdapterTrace& trace : traces)
      exits.emplace_back(logits_of(trace.induced_unit_RD.slice(0, begin, end) * head_.norm_weight(), head_));
    distill(teacher_RV, exits, tau_, head_.dtype());
    for (std::size_t k = 0; k < depths; ++k) {
      for (float kl : exits[k].kl) result.kl[k] += tau_ * tau_ * static_cast<double>(kl);
      for (std::uint8_t agrees : exits[k].agrees) result.agreements[k] += agrees;
      grads_RD[k]
          .slice(0, begin, end)
          .copy_(at::mm(exits[k].student_RV, head_.matrix().plain()).to(at::kFloat).mul_(scale));
    }
  }
  for (std::size_t k = 0; k < depths; ++k)
    adapter_backward(weights[k], traces[k], head_.norm_weight(), grads_RD[k], gradients[k]);
  return result;
}

}  // namespace dex
