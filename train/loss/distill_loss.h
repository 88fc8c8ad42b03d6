// The masked full-vocabulary KL distillation loss (paper, Appendix C.2), value and gradient in one
// pass over row chunks: memory is O(exits x chunk x vocabulary) whatever the batch, and the
// teacher's softmax is shared by all exits.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "common/model/adapter.h"
#include "common/model/head.h"

namespace dex {

struct DistillResult {
  std::vector<double> kl;  // per non-final depth: sum over rows of tau^2 KL
  // per non-final depth: rows whose best token is the teacher's
  std::vector<std::int64_t> agreements;
};

class DistillLoss {
 public:
  static constexpr std::int64_t kChunkBytes = 24 << 20;

  // The head stays frozen. `chunk_bytes` bounds the logits of one chunk, of 64 rows at least; those
  // of the default stay near while the loss reads them.
  DistillLoss(const Head& head, double tau, std::int64_t chunk_bytes = kChunkBytes);

  // h_RD[k] are the supervised rows at depth k, final_RD the same rows at depth L. Adds to
  // gradients[k] the gradient of
  //   1 / (depths * global_rows) * sum over depths and rows of tau^2 KL(teacher || student)
  // where global_rows counts the supervised rows of the whole step and `depths` those of all ranks
  // (0: the ones given).
  DistillResult add_gradients(const std::vector<at::Tensor>& h_RD, const at::Tensor& final_RD,
                              const std::vector<AdapterWeights>& weights, std::int64_t global_rows,
                              std::vector<AdapterWeights>& gradients,
                              std::int64_t depths = 0) const;

 private:
  const Head& head_;
  double tau_;
  std::int64_t chunk_rows_;
};

}  // namespace dex
