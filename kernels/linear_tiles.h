// The inner tiles of linear(): what differs by instruction set. Private to kernels/linear*.cpp and their test.
#pragma once
#include <cstddef>

#include "kernels/linear.h"

namespace dex {

// `in` is summed in chunks that end at multiples of this, each reduced to a float and added to y in turn: x and the weights
// of a tile stay in the near caches, and the order is the same in every tiling.
constexpr int kChunk = 1536;
// Packed rows of x are padded with zeros to a multiple of this many elements.
constexpr int kPad = 64;
// Outputs of a tile: their sums are reduced together.
constexpr int kOuts = 4;
// Beside i8 weights a chunk of x becomes integers up to this size: no sum of a chunk's products passes 2^31.
constexpr int kMaxQuantum = 11007;
static_assert(std::int64_t{kChunk} * kMaxQuantum * 127 < std::int64_t{1} << 31);

// One chunk of a few rows times up to kOuts outputs.
struct LinearTile {
  const void* x = nullptr;           // packed, at the chunk
  std::ptrdiff_t x_stride = 0;       // elements of packed x between rows
  const float* x_scales = nullptr;   // (rows): what the packed integers of x are multiplied by; i8 only
  const void* weight = nullptr;      // at the chunk
  std::ptrdiff_t weight_stride = 0;  // elements between outputs
  const float* scales = nullptr;     // (outs) of i8 weights: set with the last chunk only
  const float* bias = nullptr;       // (outs), added last: set with the last chunk only
  const char* ahead = nullptr;       // fetched meanwhile, ahead_lines cache lines a step
  int ahead_lines = 0;               // 0 .. kOuts
  int count = 0;                     // elements of `in`, 1 .. kChunk
  int outs = 0;                      // 1 .. kOuts
  float* y = nullptr;
  std::ptrdiff_t y_stride = 0;
  bool first = false;                // y is written, not added to
};

struct LinearTiles {
  // Packs a row's chunk of x in the order the tiles read it, padding included. Returns what the packed values are to be
  // multiplied by.
  float (*pack)(const float* x, void* to, int count) = nullptr;
  int packed_size = 4;  // bytes per packed element
  int step = 0;         // elements of `in` that a tile's step takes
  int max_rows = 0;
  void (*tile[7])(const LinearTile&) = {};  // by rows, 1 .. max_rows
};

// Tiles of the best vector instructions this CPU has.
const LinearTiles& vector_tiles(Dtype dtype);
// Tiles of instructions that multiply and add pairs of bf16 or of 16-bit integers at once; null where there are none.
const LinearTiles* dot_tiles(Dtype dtype);

// Packs a chunk of x as 16-bit integers for i8 weights; returns their scale, NaN if the chunk holds a value that is not
// finite.
float pack_quanta(const float* x, void* to, int count);

// One step's share of fetching ahead; kOuts lines a step are as many as a step reads.
inline const char* fetch_ahead(const char* ahead, int lines) {
#pragma GCC unroll 4
  for (int i = 0; i < kOuts; ++i)
    if (i < lines) __builtin_prefetch(ahead + 64 * i, 0, 2);
  return ahead + 64 * lines;
}

namespace cpu {
void linear(const Linear& p, Workers& workers, const LinearTiles& tiles);
}  // namespace cpu

}  // namespace dex
