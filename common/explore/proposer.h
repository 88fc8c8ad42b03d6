// Where proposals come from: nodes that may enter E_0 next round. The exits are one source; a draft
// source may lay a whole block behind a node, to enter in the same wave.
#pragma once
#include <memory>
#include <vector>

#include "common/base/token.h"
#include "common/explore/policy.h"

namespace dex {

class Lattice;

struct Proposal {
  int parent = -1;   // node of the lattice; -1: the queued token, in the same wave
  Token token = 0;   // what follows it; not yet a child of it
  int source = 0;    // the exit that proposes it, or kDraft
  int rank = 0;      // among what its source proposes there
  double p = 1;      // that it is on the committed path
  int follows = -1;  // drafts: the earlier proposal of the list that it follows in the same wave,
                     // in place of `parent`
};

constexpr int kDraft = -1;

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Appends what it has, a function of the lattice alone: every explorer asks and must get the
  // same.
  virtual void propose(const Lattice& lattice, std::vector<Proposal>& proposals) const = 0;
};

// Every exit's answers: in `full` its best token that is not yet a child (or, without DECS, its
// best token unless it is one), in `budget` all its ranked tokens with their probabilities.
std::unique_ptr<Proposer> exit_proposer(const LatticePolicy& policy);

// What enters E_0, parents before what follows them: all of it in `full`; in `budget` the most
// likely ones, as many as the rows that are left; nothing past the last position. A total order, so
// that every explorer takes the same ones.
std::vector<Proposal> choose(std::vector<Proposal> proposals, const LatticePolicy& policy,
                             const Lattice& lattice);

}  // namespace dex
