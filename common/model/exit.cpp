#include "common/model/exit.h"

#include <utility>

namespace dex {

Exit::Exit(const Head& head, const Adapter* adapter, std::shared_ptr<const Sampler> sampler)
    : head_(head), adapter_(adapter), sampler_(std::move(sampler)) {}

std::vector<ExitAnswer> Exit::read(const at::Tensor& h, int width,
                                   const std::vector<std::vector<Token>>& asked,
                                   const std::vector<std::int32_t>& positions,
                                   ThreadPool& pool) const {
  if (h.size(0) == 0) return {};
  const at::Tensor logits = head_.logits(adapter_ ? adapter_->induce(h, pool) : h, pool);
  return sampler_->answers({.logits = logits.data_ptr<float>(),
                            .rows = int(h.size(0)),
                            .vocab = head_.vocab(),
                            .holes = head_.holes(),
                            .positions = positions},
                           width, asked, pool);
}

}  // namespace dex
