// Which rows are explored. No policy can change a committed token, only the round in which it
// comes.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/token.h"
#include "common/explore/row_costs.h"

namespace dex {

class Lattice;

struct Proposal {
  int parent = -1;     // node of the lattice; -1: the queued token, in the same wave
  Token token = 0;     // what follows it; not yet a child of it
  int source = 0;      // the exit that proposes it, or kDraft
  int rank = 0;        // among what its source proposes there
  double p = 1;        // that it is on the committed path
  double drafted = 0;  // by a draft source: that it follows what is before it
  int follows = -1;    // drafts: the earlier proposal of the list that it follows in the same wave,
                       // in place of `parent`
};

constexpr int kDraft = -1;

enum class Expand : std::uint8_t { full, budget };

struct LatticePolicy {
  Expand expand = Expand::budget;
  int rows = 8;    // budget: new rows per round, R >= 1
  int width = 8;   // budget: ranked tokens taken from an exit
  int lookup = 0;  // budget: tokens of a drafted block, at most; 0: no drafts
  // budget: only rows that are worth their time enter; null: all that `rows` leaves room for
  std::shared_ptr<const RowCosts> costs = nullptr;
  // full: an exit proposes its best token that is not yet a child (paper, Section 3.3)
  bool decs = true;
  bool single_exit = false;  // full: only the first exit proposes (paper, Section 4.1)

  void check(int num_stages) const;  // Error(usage) when such a lattice cannot be
  int answer_width(int num_stages) const { return expand == Expand::full ? num_stages : width; }
  int max_nodes(int num_stages) const;  // nodes alive at once, at most
};

// What enters E_0, parents before what follows them: all of it in `full`; in `budget` the most
// likely ones, as many as the rows that are left; nothing past the last position. A total order, so
// that every explorer takes the same ones.
std::vector<Proposal> choose(std::vector<Proposal> proposals, const LatticePolicy& policy,
                             const Lattice& lattice);

}  // namespace dex
