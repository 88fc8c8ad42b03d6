#include "kernels/linear_tiles.h"

namespace dex {

const LinearTiles* bf16_dot_tiles() { return nullptr; }

}  // namespace dex
