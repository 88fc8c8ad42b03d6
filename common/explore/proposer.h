// Where proposals come from: nodes that may enter E_0 next round. The exits are one source; a draft
// source may lay a whole block behind a node, to enter in the same wave.
#pragma once
#include <memory>
#include <vector>

#include "common/base/token.h"
#include "common/explore/policy.h"

namespace dex {

class Lattice;

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Appends what it has, a function of the lattice's past alone: every explorer asks once a round
  // and must get the same.
  virtual void propose(const Lattice& lattice, std::vector<Proposal>& proposals) = 0;
};

// Every exit's answers: in `full` its best token that is not yet a child (or, without DECS, its
// best token unless it is one), in `budget` all its ranked tokens with their probabilities.
std::unique_ptr<Proposer> exit_proposer(const LatticePolicy& policy);

}  // namespace dex
