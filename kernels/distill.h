// The full-vocabulary distillation loss of a row of logits, value and gradient in one visit.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/stream.h"
#include "kernels/types.h"

namespace dex {

struct DistillRows {
  const void* teacher = nullptr;  // (rows, vocab) logits of dtype
  const void* student = nullptr;  // as teacher
  // as teacher: softmax(student / tau) - softmax(teacher / tau); may be student
  void* difference = nullptr;
  float* kl = nullptr;  // (rows): KL(softmax(teacher / tau) || softmax(student / tau))
  // (rows): both have the same best token, the lowest id among equals
  std::uint8_t* agrees = nullptr;
  int rows = 0, vocab = 0;
  float inverse_tau = 1;
  Dtype dtype = Dtype::f32;
};

namespace cpu {
// On the caller's thread; NaN in a row's logits makes its kl NaN.
void distill_rows(const DistillRows& p);
// Several students of the same rows of one teacher, whose softmax is made once.
void distill_rows(std::span<const DistillRows> students);
}  // namespace cpu

namespace cuda {
int distill_rows(const DistillRows& p, Stream stream);
}  // namespace cuda

}  // namespace dex
