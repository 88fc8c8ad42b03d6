// Exit k: the read-out after explorer E_k. Adapter (non-final depths that have one), final norm,
// head, sampler.
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/token.h"
#include "common/explore/exit_answer.h"
#include "common/model/adapter.h"
#include "common/model/head.h"
#include "common/model/sampler.h"

namespace dex {

class Exit {
 public:
  // `adapter` may be null. Head and adapter must outlive the exit.
  Exit(const Head& head, const Adapter* adapter,
       std::shared_ptr<const Sampler> sampler = greedy_sampler());

  // asked[i] are ids whose probability row i wants.
  std::vector<ExitAnswer> read(const at::Tensor& h_RD, int width,
                               const std::vector<std::vector<Token>>& asked,
                               const std::vector<std::int32_t>& positions, ThreadPool& pool) const;

 private:
  const Head& head_;
  const Adapter* adapter_;
  std::shared_ptr<const Sampler> sampler_;
};

}  // namespace dex
