#include "common/explore/policy.h"

#include "common/base/error.h"

namespace dex {

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

}  // namespace dex
