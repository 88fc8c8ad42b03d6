// How often what followed the longest match of some length came again: a prior, then what the text
// itself has shown.
#pragma once
#include <array>

#include "common/explore/ngram_index.h"

namespace dex {

class MatchConfidence {
 public:
  double of(int length) const {
    const Count& c = counts_[std::size_t(length - 1)];
    return (kPrior[std::size_t(length - 1)] * kPriorTrials + c.right) / (kPriorTrials + c.trials);
  }

  void count(int length, bool right) {
    Count& c = counts_[std::size_t(length - 1)];
    c.trials += 1;
    c.right += right;
  }

 private:
  // greedy text of a small model on maths, code and summaries
  static constexpr std::array<double, NgramIndex::kLongest> kPrior{.26, .51, .63, .71,
                                                                   .80, .84, .88, .92};
  static constexpr double kPriorTrials = 4;

  struct Count {
    double trials = 0, right = 0;
  };
  std::array<Count, NgramIndex::kLongest> counts_{};
};

}  // namespace dex
