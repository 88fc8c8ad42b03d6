// Closed-form start of the adapters: since silu(z) - silu(-z) = z, a width of 2D holds any linear
// map A of RMSNorm(h).
//   A = argmin |A RMSNorm(h) - (c y / gamma - h)|^2 + 30 |A|^2 over supervised rows,
//   y / gamma = h_L / RMS(h_L), c = 3 x median RMS(h);
//   W1 = [I; -I], W2 = [A, -A], biases 0, alpha = 1
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "common/model/adapter.h"
#include "common/model/config.h"

namespace dex {

// Normal equations of all depths, accumulated in float64 on the CPU, one pass over the rows. R
// rows, D hidden.
class RidgeStart {
 public:
  RidgeStart(const ModelConfig& config, int num_depths);

  void add(const std::vector<at::Tensor>& h_RD, const at::Tensor& final_RD);
  std::int64_t rows() const { return rms_.empty() ? 0 : std::int64_t(rms_.front().size()); }
  std::vector<AdapterWeights> solve() const;  // Error(usage) when no row was added

  // What rows add up to, so that several may share them: sums() add, the RMS of rows are laid end
  // to end.
  // Live, float64 (depths, 3, D, D): sums of x x^T, x t^T, x h^T.
  const at::Tensor& sums() const { return sums_; }
  std::vector<std::vector<float>>& rms() { return rms_; }  // by depth, of every row's h

 private:
  float eps_;
  at::Tensor sums_;
  std::vector<std::vector<float>> rms_;
};

}  // namespace dex
