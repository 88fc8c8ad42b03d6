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

// Tokens per second so far, after a few rounds that are taken for granted: about half of what every
// exit's guess being right would give.
double pace(const Lattice& lattice, const RowCosts& costs) {
  constexpr double kGranted = 4;
  const double tokens = kGranted * 2 / (lattice.num_stages() + 1) + lattice.committed();
  double seconds = kGranted * costs.seconds(1);
  const auto& rounds = lattice.rounds_by_rows();
  for (std::size_t rows = 0; rows < rounds.size(); ++rows)
    seconds += rounds[rows] * costs.seconds(int(rows));
  return tokens / seconds;
}

// How many of the likeliest rows are worth their time: those that give most tokens, less what the
// pace would give in the time that they take.
int worth(const std::vector<double>& likelihoods, int queued, const Lattice& lattice,
          const RowCosts& costs) {
  const double tokens_per_second = pace(lattice, costs);
  int best = 0;
  double tokens = 0, best_gain = -tokens_per_second * costs.seconds(queued);
  for (int n = 1; n <= int(likelihoods.size()); ++n) {
    tokens += likelihoods[std::size_t(n - 1)];
    const double gain = tokens - tokens_per_second * costs.seconds(queued + n);
    if (gain > best_gain) best = n, best_gain = gain;
  }
  return best;
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
  std::vector<double> likelihoods;
  std::vector<int> number(proposals.size(), -1);  // in `chosen`
  for (const int i : order) {
    Proposal& p = proposals[i];
    if (int(chosen.size()) >= room) break;
    if (places[i].position > lattice.last_position()) continue;
    if (p.follows >= 0 && number[p.follows] < 0) continue;
    if (p.follows >= 0) p.follows = number[p.follows];
    number[i] = int(chosen.size());
    chosen.push_back(p);
    likelihoods.push_back(places[i].p);
  }
  if (policy.costs)
    chosen.resize(
        std::size_t(worth(likelihoods, lattice.queued() ? 1 : 0, lattice, *policy.costs)));
  return chosen;
}

}  // namespace dex
