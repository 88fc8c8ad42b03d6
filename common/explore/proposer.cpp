#include "common/explore/proposer.h"

#include <algorithm>
#include <numeric>
#include <tuple>

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

  void propose(const Lattice& lattice, std::vector<Proposal>& proposals) const override {
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
  void propose(const Lattice& lattice, std::vector<Proposal>& proposals) const override {
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

// Where a proposal would stand.
struct Place {
  double p = 0;  // at most that of what it follows
  int depth = 0, parent_row = 0, position = 0;
};

std::vector<Place> places_of(const std::vector<Proposal>& proposals, const Lattice& lattice) {
  std::vector<Place> places;
  for (const Proposal& p : proposals) {
    if (p.follows >= 0) {
      const Place before = places[p.follows];
      places.push_back(
          {std::min(p.p, before.p), before.depth + 1, before.parent_row, before.position + 1});
    } else if (p.parent >= 0) {
      const Lattice::Node& parent = lattice.node(p.parent);
      places.push_back({p.p, 0, parent.row, parent.position + 1});
    } else {
      places.push_back({p.p, 0, -1, lattice.tip_position() + 1});
    }
  }
  return places;
}

// Likelier ones first, what a block begins with before what follows it. A total order.
std::vector<int> by_likelihood(const std::vector<Proposal>& proposals,
                               const std::vector<Place>& places) {
  std::vector<int> order(proposals.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int i) {
    const Proposal& p = proposals[i];
    return std::tuple(-places[i].p, places[i].depth, places[i].parent_row, p.source, p.rank, i);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  return order;
}

}  // namespace

std::unique_ptr<Proposer> exit_proposer(const LatticePolicy& policy) {
  if (policy.expand == Expand::full) return std::make_unique<FullExits>(policy);
  return std::make_unique<RankedExits>();
}

std::vector<Proposal> choose(std::vector<Proposal> proposals, const LatticePolicy& policy,
                             const Lattice& lattice) {
  const auto places = places_of(proposals, lattice);
  std::vector<int> order(proposals.size());
  std::iota(order.begin(), order.end(), 0);
  int room = order.size();
  if (policy.expand == Expand::budget) {
    order = by_likelihood(proposals, places);
    room = policy.rows - (lattice.queued() ? 1 : 0);
  }
  std::vector<Proposal> chosen;
  std::vector<int> number(proposals.size(), -1);  // in `chosen`
  for (const int i : order) {
    Proposal& p = proposals[i];
    if (int(chosen.size()) >= room) break;
    if (places[i].position > lattice.last_position()) continue;
    if (p.follows >= 0 && number[p.follows] < 0) continue;
    if (p.follows >= 0) p.follows = number[p.follows];
    number[i] = int(chosen.size());
    chosen.push_back(p);
  }
  return chosen;
}

}  // namespace dex
