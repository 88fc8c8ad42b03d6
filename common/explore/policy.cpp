#include "common/explore/policy.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "common/base/error.h"
#include "common/explore/lattice.h"

namespace dex {
namespace {

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

void LatticePolicy::check(int num_stages) const {
  constexpr int kMost = 4096;
  if (expand == Expand::full)
    require(num_stages <= 12, ExitCode::usage,
            "the full lattice of {} depths has 2^{} nodes; wanted at most 12 depths, or --expand "
            "budget",
            num_stages, num_stages);
  else
    require(rows >= 1 && rows <= kMost && width >= 1 && width <= kMost, ExitCode::usage,
            "a budget of {} rows and width {}, wanted 1 .. {} of each", rows, width, kMost);
}

int LatticePolicy::max_nodes(int num_stages) const {
  return expand == Expand::full ? 1 << num_stages : (rows + 1) * num_stages;
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
