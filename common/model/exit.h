// Exit k: the read-out after explorer E_k. Adapter (non-final depths that have one), final norm,
// head, ranking.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "common/base/token.h"
#include "common/explore/exit_answer.h"
#include "common/model/adapter.h"
#include "common/model/head.h"

namespace dex {

class Exit {
 public:
  // `adapter` may be null. Both must outlive the exit.
  Exit(const Head& head, const Adapter* adapter, int depth);

  // asked[i] are ids whose probability row i wants. NaN logits are Error(io) naming depth and
  // position.
  std::vector<ExitAnswer> read(const at::Tensor& h_RD, int width,
                               const std::vector<std::vector<Token>>& asked,
                               const std::vector<std::int32_t>& positions, ThreadPool& pool) const;
  int depth() const { return depth_; }

 private:
  const Head& head_;
  const Adapter* adapter_;
  int depth_;
};

}  // namespace dex
