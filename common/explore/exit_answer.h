// What one exit answers for one row.
#pragma once
#include <cstdint>
#include <vector>

#include "common/base/token.h"

namespace dex {

struct ExitAnswer {
  Token reference = 0;        // what the sampler picks here: the text's, where the exit is final
  std::vector<Token> tokens;  // best first
  std::vector<float> probabilities;  // of tokens
  std::vector<float> asked;          // probabilities of the ids asked for, in their order
  float gap = 0;                     // best logit minus second best
  std::uint64_t hash = 0;            // of the bits of the row's logits
  bool numbers = true;               // false: the logits hold NaN, and nothing else is said here
};

}  // namespace dex
