// When a token was ready, from the ranked candidates of the explored depths: the one arithmetic
// behind training evaluation, EAD tables and hop counts.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/token.h"

namespace dex {

struct Readiness {  // exits count from 0; K-1 is the final one
  int first = 0;    // first match: smallest exit whose candidate is the reference (eq. 1)
  int stable = 0;   // smallest exit from which on every candidate is (eq. 3)
  // first exit whose DECS proposal is the reference; K-1 when none before it
  int decs_branch = 0;
};

// ranked[k] are exit k's tokens, best first, the final exit's last; its best token is the
// reference. Exit k needs min(k+1, vocabulary) tokens for the DECS proposals. A hop is the branch +
// 1.
Readiness readiness(std::span<const std::vector<Token>> ranked);

// What decoding takes in `full` mode, told from readiness alone: a text costs K rounds, and branch
// + 1 for each of its tokens but the last.
class RoundCount {
 public:
  explicit RoundCount(int num_stages) : num_stages_(num_stages) {}
  void add(const Readiness& token, bool last_of_text);

  std::int64_t texts() const { return texts_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t rounds() const { return rounds_; }

 private:
  int num_stages_;
  std::int64_t texts_ = 0, tokens_ = 0, rounds_ = 0;
};

}  // namespace dex
