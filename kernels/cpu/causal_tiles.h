// The inner tiles of attend_causally(): what differs by instruction set. Private to
// kernels/causal_* and their test.
#pragma once
#include <cstddef>

#include "kernels/causal_attention.h"

namespace dex {

// Both products of attention, queries x keys and weights x values, are rows times a panel of
// columns: out = left x panel, the sum over units of 4 bytes, each a float or a pair of bf16, one
// after the other.
struct CausalTile {
  const void* left = nullptr;      // rows of units
  const void* panel = nullptr;     // (units, width) of units: 64 bytes aligned
  std::ptrdiff_t left_stride = 0;  // in units
  float* out = nullptr;            // (rows, width), 64 bytes aligned like its stride
  std::ptrdiff_t out_stride = 0;   // in floats
  std::ptrdiff_t units = 0;
};

constexpr int kCausalWidth = 64;  // a multiple of every width

struct CausalTiles {
  int width = 0;                                          // columns of a panel
  int depth = 1;                                          // values in a unit: 1 float or 2 bf16
  void (*tile[kCausalRows + 1])(const CausalTile&) = {};  // by rows, 1 .. kCausalRows
};

const CausalTiles& vector_causal_tiles();  // floats
// pairs of bf16; null where the CPU does not multiply them
const CausalTiles* bf16_causal_tiles();

// A row of scores becomes weights e^(scale (score - largest)), not yet divided by their sum, which
// is returned. Those from `count` up to `padded` are zero. `narrow`: as bf16 from the row's
// beginning on.
float soften_causal(float* scores, int count, int padded, float scale, bool narrow);

namespace cpu {
std::size_t causal_packed_bytes(const CausalAttention& p, const CausalTiles& tiles);
void pack_causal(const CausalAttention& p, const CausalTiles& tiles);
void attend_causally(const CausalAttention& p, int first, int end, const CausalTiles& tiles);
}  // namespace cpu

}  // namespace dex
