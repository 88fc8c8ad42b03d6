#include "common/model/head.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/model/tensors.h"
#include "kernels/row_ops.h"

namespace dex {

Embedding::Embedding(const ModelConfig& config, const WeightFile& weights, Dtype dtype,
                     WeightPlace place)
    : matrix_(Matrix::load(weights, {{"model.embed_tokens.weight", config.vocab_size}},
                           config.hidden_size, dtype, place)) {}

at::Tensor Embedding::rows(std::span<const Token> ids) const {
  for (Token id : ids)
    require(id >= 0 && id < matrix_.out(), ExitCode::usage,
            "token id {} is outside the model's vocabulary of {}", id, matrix_.out());
  const auto index =
      at::from_blob(const_cast<Token*>(ids.data()), {std::int64_t(ids.size())}, at::kInt);
  return matrix_.rows(index);
}

Head::Head(const ModelConfig& config, const WeightFile& weights, const Embedding* embedding,
           int vocab, Dtype dtype, WeightPlace place, std::vector<Token> holes)
    : norm_weight_(load_tensor(weights, "model.norm.weight", {config.hidden_size}, Dtype::f32)
                       .to(place.device)),
      holes_(std::move(holes)),
      eps_(config.rms_norm_eps) {
  const Matrix whole = config.tied_head
                           ? embedding->matrix()
                           : Matrix::load(weights, {{"lm_head.weight", config.vocab_size}},
                                          config.hidden_size, dtype, place);
  require(vocab > 0 && vocab <= whole.out() && int(holes_.size()) < vocab, ExitCode::usage,
          "{}: the tokenizer has {} ids, {} of them without a token, the model's head {} rows",
          weights.origin(), vocab, holes_.size(), whole.out());
  matrix_ = whole.outputs(0, vocab);
}

at::Tensor Head::norm(const at::Tensor& h) const {
  if (!h.is_cpu()) return at::rms_norm(h, norm_weight_.sizes(), norm_weight_, eps_);
  at::Tensor y = at::empty_like(h);
  cpu::rms_norm({.x = h.data_ptr<float>(),
                 .weight = norm_weight_.data_ptr<float>(),
                 .y = y.data_ptr<float>(),
                 .rows = int(h.size(0)),
                 .size = int(h.size(1)),
                 .eps = eps_});
  return y;
}

at::Tensor Head::logits(const at::Tensor& normed, HeadShare share, ThreadPool& pool) const {
  at::Tensor y = at::empty({normed.size(0), share.ids});
  matrix_.outputs(share.first_id, share.ids).multiply(normed, y, pool);
  const auto first = std::lower_bound(holes_.begin(), holes_.end(), share.first_id),
             last = std::lower_bound(first, holes_.end(), share.first_id + share.ids);
  for (std::int64_t row = 0; row < y.size(0); ++row)
    for (auto hole = first; hole != last; ++hole)
      y.data_ptr<float>()[row * share.ids + *hole - share.first_id] = kLowest;
  return y;
}

}  // namespace dex
