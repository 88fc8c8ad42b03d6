// Final logits of every position of one sequence, through the decoder's stages in one row-invariant
// pass.
#pragma once
#include <ATen/ATen.h>

#include <numeric>
#include <span>
#include <vector>

#include "common/model/model.h"

namespace dex::test {

// (ids, vocab) f32; `chunk` rows a call.
inline at::Tensor all_logits(const Model& model, std::span<const Token> ids, int chunk,
                             int threads) {
  std::vector<std::int32_t> context(ids.size());
  std::iota(context.begin(), context.end(), 0);
  std::vector<KvCache> caches;
  for (const Stage& stage : model.stages) caches.push_back(stage.make_cache(int(ids.size())));
  ThreadPool pool(threads);
  std::vector<at::Tensor> parts;
  for (int first = 0; first < int(ids.size()); first += chunk) {
    const int count = std::min(chunk, int(ids.size()) - first);
    at::Tensor x = model.embedding->rows(ids.subspan(first, count));
    for (std::size_t k = 0; k < caches.size(); ++k)
      model.stages[k].forward(x, RowLayout::contiguous(first, count, context), caches[k], pool);
    parts.push_back(model.head->logits(model.head->norm(x), HeadShare::whole(model.vocab), pool));
  }
  return at::cat(parts);
}

}  // namespace dex::test
