#include "train/loss/distill_loss.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "common/base/error.h"
#include "common/model/device.h"
#include "kernels/distill.h"
#include "train/loss/adapter_gradient.h"

namespace dex {
namespace {

constexpr std::int64_t kLeastRows = 64;  // fewer make the products slow

at::Tensor logits_of(const at::Tensor& normed_RD, const Head& head) {
  return at::linear(normed_RD.to(head.matrix().plain().scalar_type()), head.matrix().plain());
}

// What one exit gives per row: KL, and whether the best tokens agree.
struct RowResults {
  at::Tensor kl_R, agrees_R;

  explicit RowResults(const at::Tensor& h_RD)
      : kl_R(at::empty({h_RD.size(0)}, h_RD.options().dtype(at::kFloat))),
        agrees_R(at::empty({h_RD.size(0)}, h_RD.options().dtype(at::kByte))) {}

  // Of the rows from `begin` on, whose logits are given; softmax(student) - softmax(teacher) takes
  // the student's place.
  DistillRows chunk(const at::Tensor& teacher_RV, const at::Tensor& student_RV, double tau,
                    Dtype dtype, std::int64_t begin) const {
    return {.teacher = teacher_RV.data_ptr(),
            .student = student_RV.data_ptr(),
            .difference = student_RV.data_ptr(),
            .kl = kl_R.data_ptr<float>() + begin,
            .agrees = agrees_R.data_ptr<std::uint8_t>() + begin,
            .rows = int(student_RV.size(0)),
            .vocab = int(student_RV.size(1)),
            .inverse_tau = float(1 / tau),
            .dtype = dtype};
  }
};

DistillRows part_of(DistillRows p, std::int64_t begin, std::int64_t end) {
  const std::int64_t bytes = begin * p.vocab * size_of(p.dtype);
  p.teacher = static_cast<const std::byte*>(p.teacher) + bytes;
  p.student = static_cast<const std::byte*>(p.student) + bytes;
  p.difference = static_cast<std::byte*>(p.difference) + bytes;
  p.kl += begin;
  p.agrees += begin;
  p.rows = int(end - begin);
  return p;
}

// All of the same rows of one teacher.
void distill(const std::vector<DistillRows>& exits, at::Device device) {
  if (!device.is_cpu()) {
    for (const DistillRows& exit : exits) {
      const int error = cuda::distill_rows(exit, stream_of(device));
      require(error == 0, ExitCode::bug, "the kernel of the loss gives CUDA's error {}", error);
    }
    return;
  }
  at::parallel_for(0, exits.front().rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<DistillRows> parts;
    for (const DistillRows& exit : exits) parts.push_back(part_of(exit, begin, end));
    cpu::distill_rows(parts);
  });
}

}  // namespace

DistillLoss::DistillLoss(const Head& head, double tau, std::int64_t chunk_bytes)
    : head_(head),
      tau_(tau),
      chunk_rows_(std::max(kLeastRows,
                           chunk_bytes / (std::int64_t{size_of(head.dtype())} * head.vocab()))) {}

DistillResult DistillLoss::add_gradients(const std::vector<at::Tensor>& h_RD,
                                         const at::Tensor& final_RD,
                                         const std::vector<AdapterWeights>& weights,
                                         std::int64_t global_rows,
                                         std::vector<AdapterWeights>& gradients,
                                         std::int64_t global_depths) const {
  const std::size_t depths = h_RD.size();
  if (global_depths == 0) global_depths = std::int64_t(depths);
  const std::int64_t rows = final_RD.size(0);
  DistillResult result{std::vector<double>(depths), std::vector<std::int64_t>(depths)};
  if (rows == 0 || depths == 0) return result;

  std::vector<AdapterTrace> traces;
  std::vector<at::Tensor> grads_RD;
  std::vector<RowResults> results;
  for (std::size_t k = 0; k < depths; ++k) {
    traces.push_back(adapter_forward(weights[k], h_RD[k], head_.eps()));
    grads_RD.push_back(at::empty_like(h_RD[k]));
    results.emplace_back(h_RD[k]);
  }
  const at::Tensor teacher_RD = head_.norm(final_RD.contiguous());
  // d/dz of tau^2 KL is tau (q - p).
  const double scale = tau_ / (double(global_depths) * global_rows);
  for (std::int64_t begin = 0; begin < rows; begin += chunk_rows_) {
    const std::int64_t end = std::min(rows, begin + chunk_rows_);
    const at::Tensor teacher_RV = logits_of(teacher_RD.slice(0, begin, end), head_);
    std::vector<at::Tensor> students_RV;
    std::vector<DistillRows> exits;
    for (std::size_t k = 0; k < depths; ++k) {
      students_RV.push_back(
          logits_of(traces[k].induced_unit_RD.slice(0, begin, end) * head_.norm_weight(), head_));
      exits.push_back(results[k].chunk(teacher_RV, students_RV[k], tau_, head_.dtype(), begin));
    }
    distill(exits, final_RD.device());
    for (std::size_t k = 0; k < depths; ++k)
      grads_RD[k]
          .slice(0, begin, end)
          .copy_(at::mm(students_RV[k], head_.matrix().plain()).to(at::kFloat).mul_(scale));
  }
  for (std::size_t k = 0; k < depths; ++k)
    adapter_backward(weights[k], traces[k], head_.norm_weight(), grads_RD[k], gradients[k]);
  for (std::size_t k = 0; k < depths; ++k) {
    const at::Tensor kl = results[k].kl_R.cpu(), agrees = results[k].agrees_R.cpu();
    for (std::int64_t row = 0; row < rows; ++row) {
      result.kl[k] += tau_ * tau_ * double(kl.data_ptr<float>()[row]);
      result.agreements[k] += agrees.data_ptr<std::uint8_t>()[row];
    }
  }
  return result;
}

}  // namespace dex
