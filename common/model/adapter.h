// The inducing adapter of one depth (paper, Appendix C.2): h + alpha * (W2 act(W1 RMSNorm(h) + b1)
// + b2).
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/safetensors.h"
#include "common/model/config.h"
#include "common/model/matrix.h"
#include "kernels/thread_pool.h"
#include "kernels/types.h"

namespace dex {

// The trainable tensors, always float32. D hidden, M width (2D by default).
struct AdapterWeights {
  at::Tensor norm;             // (D)
  at::Tensor up, up_bias;      // W1 (M, D), b1 (M)
  at::Tensor down, down_bias;  // W2 (D, M), b2 (D)
  at::Tensor alpha;            // ()

  // In the order of the members, under the names of common/base/adapter_tensors.h.
  std::vector<std::pair<std::string, at::Tensor>> named() const;
  std::int64_t parameters() const;  // 2MD + M + 2D + 1

  // The paper's start: W1, W2 as nn.Linear draws them, alpha 1e-3. A pure function of (seed,
  // depth).
  static AdapterWeights paper_start(const ModelConfig& config, std::int64_t width,
                                    std::uint64_t seed, int depth);
  // Reads "depth.<depth>.<name>" of an adapter file; a wrong shape or a missing tensor is
  // Error(io).
  static AdapterWeights read(const WeightFile& file, const ModelConfig& config, int depth);
};

// Applies an adapter with the decoder's row-invariant kernels, its linears in `dtype` (bf16 beside
// int8 weights).
class Adapter {
 public:
  Adapter(const AdapterWeights& weights, float eps, Dtype dtype);
  at::Tensor induce(const at::Tensor& h_RD, ThreadPool& pool) const;  // (rows, hidden) f32

 private:
  at::Tensor norm_, up_bias_, down_bias_;
  Matrix up_, down_;
  float alpha_, eps_;
};

}  // namespace dex
