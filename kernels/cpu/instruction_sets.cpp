#include "kernels/instruction_sets.h"

#include <hwy/highway.h>

#include "kernels/cpu/causal_tiles.h"
#include "kernels/cpu/linear_tiles.h"

namespace dex {

std::string instruction_sets() {
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  std::string names = hwy::TargetName(usable & -usable);  // the best has the lowest bit
  if (bf16_causal_tiles()) names += ", bf16 dot products";
  if (int8_dot_tiles()) names += ", int8 dot products";
  return names;
}

}  // namespace dex
