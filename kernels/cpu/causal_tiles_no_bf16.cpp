#include "kernels/cpu/causal_tiles.h"

namespace dex {

const CausalTiles* bf16_causal_tiles() { return nullptr; }

}  // namespace dex
