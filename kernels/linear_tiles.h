// The inner tiles of linear(): what differs by instruction set. Private to linear.cpp and the files that provide tiles.
#pragma once
#include <cstddef>

#include "kernels/types.h"

namespace dex {

// `in` is summed in chunks that end at multiples of this, each reduced to a float and added to y in turn: x and weights of
// a tile stay in the first cache, and the order is the same in every tiling.
constexpr int kChunk = 1024;
// Packed x rows are padded with zeros to a multiple of this many elements.
constexpr int kPad = 64;

// One chunk of a few rows times a few outputs.
struct LinearTile {
  const void* x = nullptr;       // packed, at the chunk
  std::ptrdiff_t x_stride = 0;   // elements of packed x between rows
  const void* weight = nullptr;  // at the chunk
  std::ptrdiff_t weight_stride = 0;  // elements between outputs
  std::ptrdiff_t ahead = 0;      // elements from this weight to the one wanted next, fetched meanwhile
  int count = 0;                 // elements of `in`, 1 .. kChunk
  int outs = 0;                  // valid outputs, 1 .. those of the tile
  float* y = nullptr;
  std::ptrdiff_t y_stride = 0;
  const float* bias = nullptr;   // added last: set with the last chunk only
  bool first = false;            // y is written, not added to
};

struct LinearTiles {
  static constexpr int kMaxRows = 6;
  using Tile = void (*)(const LinearTile&);

  // Packs one row of x in the order the tiles read it; `to` holds the padded row.
  void (*pack)(const float* x, void* to, int in) = nullptr;
  int packed_size = 4;                // bytes per packed element
  int max_rows = 0;                   // tiles exist for 1 .. max_rows
  Tile tile[kMaxRows + 1] = {};       // by rows
  int outs[kMaxRows + 1] = {};        // outputs of a tile, by rows
};

// The tiles of the best instruction set this CPU has.
const LinearTiles& linear_tiles(Dtype dtype);

}  // namespace dex
