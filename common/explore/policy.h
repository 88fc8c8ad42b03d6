// Which rows are explored. No policy can change a committed token, only the round in which it
// comes.
#pragma once
#include <cstdint>

namespace dex {

enum class Expand : std::uint8_t { full, budget };

struct LatticePolicy {
  Expand expand = Expand::budget;
  int rows = 8;   // budget: new rows per round, R >= 1
  int width = 8;  // budget: ranked tokens taken from an exit
  // full: an exit proposes its best token that is not yet a child (paper, Section 3.3)
  bool decs = true;
  bool single_exit = false;  // full: only the first exit proposes (paper, Section 4.1)

  void check(int num_stages) const;  // Error(usage) when such a lattice cannot be
  int answer_width(int num_stages) const { return expand == Expand::full ? num_stages : width; }
  int max_nodes(int num_stages) const;  // nodes alive at once, at most
};

}  // namespace dex
