// Where a row of logits becomes a token: the one place that picks. Owners of parts of the
// vocabulary each look at their ids, and what they found together gives the answers: the same ones
// whoever owns which slices.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/token.h"
#include "common/explore/exit_answer.h"
#include "common/explore/limits.h"
#include "common/model/exit_question.h"
#include "common/model/head_share.h"
#include "kernels/thread_pool.h"

namespace dex {

struct LogitRows {
  const float* logits = nullptr;  // (rows, share.ids); -infinity at ids without a token
  int rows = 0;
  HeadShare share;
};

// What the owner of a share found in an exit's rows.
struct RowSlices {
  std::vector<VocabSlice> slices;     // (slices, rows)
  std::vector<std::int32_t> keys{0};  // (rows + 1): where each row's best tokens begin
  std::vector<RankKey> best;          // those that may be among the row's best
  std::vector<float> asked;           // logits of the ids asked for; -infinity where another's
};

struct Vocabulary {
  int ids = 0;
  std::span<const Token> holes;  // ids whose logits are -infinity, ascending; fewer than ids
};

class Sampler {
 public:
  virtual ~Sampler() = default;

  virtual RowSlices look(const LogitRows& rows, const ExitQuestion& question,
                         ThreadPool& pool) const = 0;

  // An answer for each row: its reference, the `width` best tokens (all, where the vocabulary has
  // fewer; no hole) and the probabilities of the ids asked for. A row's answer is a function of
  // that row and its position alone. `parts`: of all owners, in the order of ids.
  virtual std::vector<ExitAnswer> answers(std::span<const RowSlices> parts,
                                          const ExitQuestion& question,
                                          const Vocabulary& vocabulary, ThreadPool& pool) const = 0;
};

// The best token, the lowest id among equals; ranked by logits, probabilities of the plain softmax.
std::shared_ptr<const Sampler> greedy_sampler();

// What picks the tokens of a text with these limits. They ask for the best token, whatever they
// are.
inline std::shared_ptr<const Sampler> sampler_for(const Limits&) { return greedy_sampler(); }

}  // namespace dex
