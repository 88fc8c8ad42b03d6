// When a token was ready, from the ranked candidates of the explored depths: the one arithmetic behind training
// evaluation, EAD tables and hop counts.
#pragma once
#include <span>
#include <vector>

#include "common/token.h"

namespace dex {

struct Readiness {        // exits count from 0; K-1 is the final one
  int first = 0;          // first match: smallest exit whose candidate is the reference (eq. 1)
  int stable = 0;         // smallest exit from which on every candidate is (eq. 3)
  int decs_branch = 0;    // first exit whose DECS proposal is the reference; K-1 when none before it
};

// ranked[k] are exit k's tokens, best first, the final exit's last; its best token is the reference. Exit k needs
// min(k+1, vocabulary) tokens for the DECS proposals. A hop is the branch + 1.
Readiness readiness(std::span<const std::vector<Token>> ranked);

}  // namespace dex
