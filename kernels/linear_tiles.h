// The inner tiles of linear(): what differs by instruction set. Private to kernels/linear*.cpp and their test.
#pragma once
#include <cstddef>

#include "kernels/linear.h"
#include "kernels/panels.h"
#include "kernels/quanta.h"

namespace dex {

// `in` is summed in chunks that end at multiples of this, one step after the other, each chunk added to y in turn: x and the
// weights of a tile stay in the near caches, long sums keep their precision, and the order is the same in every tiling.
constexpr int kChunk = kQuantaChunk;
constexpr int kMostRows = 12;

// One chunk of a few rows times one panel.
struct LinearTile {
  const void* x = nullptr;          // packed: step after step, in each the rows side by side
  const float* x_scales = nullptr;  // (rows): what the packed integers of x are multiplied by; i8 only
  const void* weight = nullptr;     // the panel, at the chunk
  const char* ahead = nullptr;      // fetched meanwhile, ahead_lines cache lines a step
  int ahead_lines = 0;              // 0 .. 2
  int count = 0;                    // elements of `in`, 1 .. kChunk
  int outs = 0;                     // outputs wanted of the panel, 1 .. kPanel
  float* y = nullptr;
  std::ptrdiff_t y_stride = 0;
  bool first = false;               // y is written, not added to
  const float* scales = nullptr;    // (outs) of i8 weights: set with the last chunk only
  const float* bias = nullptr;      // (outs), added last: set with the last chunk only
};

struct LinearTiles {
  // Packs a chunk of one row: step s goes to to + s * stride units. Returns what the packed values are to be multiplied by.
  float (*pack)(const float* x, void* to, int count, int stride) = nullptr;
  int unit = 4;  // bytes of a packed step of one row
  int max_rows = 0;
  void (*tile[kMostRows + 1])(const LinearTile&) = {};  // by rows, 1 .. max_rows
};

// Tiles of the best vector instructions this CPU has.
const LinearTiles& vector_tiles(Dtype dtype);
// Tiles of instructions that multiply and add pairs of bf16 or of 16-bit integers at once; null where there are none.
const LinearTiles* dot_tiles(Dtype dtype);

// Packs a chunk of x as 16-bit integers for i8 weights; returns their scale, NaN if the chunk holds a value that is not
// finite.
float pack_quanta(const float* x, void* to, int count, int stride);

// How far before their use weights are fetched: one or two rows are as fast as memory and the hardware fetches well for
// them; more take longer over a line, and their loads come in bursts. Measured: three or four do best with lines in the
// first cache, more with the second, which holds a longer lead.
constexpr std::ptrdiff_t ahead_of(int rows) { return rows <= 2 ? 2 << 10 : rows <= 4 ? 8 << 10 : 16 << 10; }

template <int kRows>
inline const char* fetch_ahead(const char* ahead, int lines) {
  constexpr int kNear = kRows == 3 || kRows == 4 ? 3 : 2;
  if (lines > 0) __builtin_prefetch(ahead, 0, kNear);
  if (lines > 1) __builtin_prefetch(ahead + 64, 0, kNear);
  return ahead + 64 * lines;
}

namespace cpu {
void linear(const Linear& p, Workers& workers, const LinearTiles& tiles);
}  // namespace cpu

}  // namespace dex
