#include "common/explore/proposer.h"

#include <algorithm>

#include "common/explore/lattice.h"

namespace dex {
namespace {

// Calls body(exit, node) for every row that a non-final exit has just answered and that may have
// children.
template <class Body>
void each_answered(const Lattice& lattice, int exits, const Body& body) {
  for (int exit = 0; exit < exits; ++exit)
    for (const int id : lattice.wave(exit))
      if (lattice.may_have_children(id)) body(exit, id);
}

class FullExits final : public Proposer {
 public:
  explicit FullExits(const LatticePolicy& policy) : policy_(policy) {}

  void propose(const Lattice& lattice, std::vector<Proposal>& proposals) override {
    const int inner = lattice.num_stages() - 1;
    each_answered(lattice, policy_.single_exit ? std::min(1, inner) : inner, [&](int exit, int id) {
      const auto& tokens = lattice.node(id).answer.tokens;
      const auto fresh = std::find_if(tokens.begin(), tokens.end(),
                                      [&](Token t) { return !lattice.has_child(id, t); });
      if (fresh == tokens.end() || (!policy_.decs && fresh != tokens.begin())) return;
      proposals.push_back(
          {.parent = id, .token = *fresh, .source = exit, .rank = int(fresh - tokens.begin())});
    });
  }

 private:
  LatticePolicy policy_;
};

class RankedExits final : public Proposer {
 public:
  void propose(const Lattice& lattice, std::vector<Proposal>& proposals) override {
    each_answered(lattice, lattice.num_stages() - 1, [&](int exit, int id) {
      const ExitAnswer& answer = lattice.node(id).answer;
      const double path = lattice.path_probability(id);
      for (std::size_t r = 0; r < answer.tokens.size(); ++r)
        if (!lattice.has_child(id, answer.tokens[r]))
          proposals.push_back({.parent = id,
                               .token = answer.tokens[r],
                               .source = exit,
                               .rank = int(r),
                               .p = path * answer.probabilities[r]});
    });
  }
};

}  // namespace

std::unique_ptr<Proposer> exit_proposer(const LatticePolicy& policy) {
  if (policy.expand == Expand::full) return std::make_unique<FullExits>(policy);
  return std::make_unique<RankedExits>();
}

}  // namespace dex
