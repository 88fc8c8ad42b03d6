// Where a row of logits becomes a token: the one place that picks.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/token.h"
#include "common/explore/exit_answer.h"
#include "common/explore/limits.h"
#include "kernels/thread_pool.h"

namespace dex {

struct LogitRows {
  const float* logits = nullptr;  // (rows, vocab)
  int rows = 0, vocab = 0;
  std::span<const Token> holes;             // ids whose logits are -infinity; fewer than vocab
  std::span<const std::int32_t> positions;  // (rows): of the token before the one that is picked
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  // An answer for each row: its reference, the `width` best tokens (all, where the vocabulary has
  // fewer; no hole) and the probabilities of the ids asked[row]. A row's answer is a function of
  // that row and its position alone.
  virtual std::vector<ExitAnswer> answers(const LogitRows& rows, int width,
                                          const std::vector<std::vector<Token>>& asked,
                                          ThreadPool& pool) const = 0;
};

// The best token, the lowest id among equals; ranked by logits, probabilities of the plain softmax.
std::shared_ptr<const Sampler> greedy_sampler();

// What picks the tokens of a text with these limits. They ask for the best token, whatever they
// are.
inline std::shared_ptr<const Sampler> sampler_for(const Limits&) { return greedy_sampler(); }

}  // namespace dex
