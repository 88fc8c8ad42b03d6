// The two ends of the backbone: the embedding that makes rows from ids, and the final norm and head
// that read them.
#pragma once
#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "common/base/safetensors.h"
#include "common/base/token.h"
#include "common/model/config.h"
#include "common/model/head_share.h"
#include "common/model/matrix.h"
#include "kernels/thread_pool.h"
#include "kernels/types.h"

namespace dex {

class Embedding {
 public:
  Embedding(const ModelConfig& config, const WeightFile& weights, Dtype dtype, WeightPlace place);
  at::Tensor rows(
      // (rows, hidden) f32; an id outside the table is Error(usage)
      std::span<const Token> ids) const;
  const Matrix& matrix() const { return matrix_; }  // (vocab_size, hidden)

 private:
  Matrix matrix_;
};

class Head {
 public:
  // `vocab`, `holes`: as ModelInfo has them. Rows of the head from `vocab` on are never read. A
  // tied head shares the memory of `embedding`, which others do not need.
  Head(const ModelConfig& config, const WeightFile& weights, const Embedding* embedding, int vocab,
       Dtype dtype, WeightPlace place, std::vector<Token> holes = {});

  at::Tensor norm(const at::Tensor& h_RD) const;  // final norm, f32
  // Of normed rows, (rows, share.ids) f32, row-invariant; -infinity in the holes. An id's logit
  // does not depend on the share.
  at::Tensor logits(const at::Tensor& normed_RD, HeadShare share, ThreadPool& pool) const;

  const at::Tensor& norm_weight() const { return norm_weight_; }  // (hidden) f32
  const Matrix& matrix() const { return matrix_; }                // (vocab, hidden)
  int vocab() const { return matrix_.out(); }
  const std::vector<Token>& holes() const { return holes_; }
  Dtype dtype() const { return matrix_.dtype(); }
  float eps() const { return eps_; }

 private:
  at::Tensor norm_weight_;
  Matrix matrix_;
  std::vector<Token> holes_;
  float eps_;
};

}  // namespace dex
