#include "kernels/instruction_sets.h"

#include <hwy/highway.h>

#include "kernels/cpu/linear_tiles.h"

namespace dex {

std::string instruction_sets() {
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  std::string names = hwy::TargetName(usable & -usable);  // the best has the lowest bit
  if (dot_tiles(Dtype::bf16)) names += ", bf16 dot products";
  if (dot_tiles(Dtype::i8)) names += ", int8 dot products";
  return names;
}

}  // namespace dex
