// Closed-form start of the adapters: since silu(z) - silu(-z) = z, a width of 2D holds any linear map A of RMSNorm(h).
//   A = argmin |A RMSNorm(h) - (c y / gamma - h)|^2 + 30 |A|^2 over supervised rows, y / gamma = h_L / RMS(h_L),
//   c = 3 x median RMS(h);   W1 = [I; -I], W2 = [A, -A], biases 0, alpha = 1
#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "common/adapter.h"
#include "common/config.h"

namespace dex {

// Normal equations of all depths, accumulated in float64, one pass over the rows. R rows, D hidden.
class RidgeStart {
 public:
  RidgeStart(const ModelConfig& config, int num_depths);

  void add(const std::vector<at::Tensor>& h_RD, const at::Tensor& final_RD);
  std::int64_t rows() const { return rows_; }
  std::vector<AdapterWeights> solve() const;  // Error(usage) when no row was added

 private:
  struct Sums {
    at::Tensor unit_unit_DD, unit_final_DD, unit_h_DD;  // float64: sums of x x^T, x t^T, x h^T
    std::vector<float> rms;                             // of every row's h
  };
  float eps_;
  std::int64_t rows_ = 0;
  std::vector<Sums> sums_;
};

}  // namespace dex
