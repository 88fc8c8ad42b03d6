// The inner tiles of linear(): what differs by instruction set. Private to kernels/linear*.cpp and
// their test.
#pragma once
#include <algorithm>
#include <cstddef>

#include "kernels/cpu/quanta.h"
#include "kernels/cpu/sum_plan.h"
#include "kernels/linear.h"
#include "kernels/panels.h"

namespace dex {

constexpr int kMostRows = 12;

// A row or two leave room in the registers for several panels. Their weights are as many streams
// through memory: a core reads four or eight far faster than one.
constexpr int kMostPanels = 8;
constexpr int most_panels(int max_rows, int rows) { return std::min(kMostPanels, max_rows / rows); }

// One slab of a few rows times neighbouring panels. A chunk's sum stays in registers; what waits
// for others of its part or of the tree is kept in memory near by.
struct LinearTile {
  // packed: row after row, the steps of kInputChunk elements from one to the next
  const void* x = nullptr;
  // (chunks, scale_stride): what the packed integers of x are multiplied by; i8 only
  const float* x_scales = nullptr;
  std::ptrdiff_t scale_stride = 0;
  const void* weight = nullptr;     // the first panel, at the slab
  std::ptrdiff_t panel_stride = 0;  // elements from a panel to the next
  // fetched meanwhile by a tile of one panel: this many cache lines a group of steps
  const char* ahead = nullptr;
  int ahead_lines = 0;  // 0 .. 2 * kGroup
  const SumChunk* chunks = nullptr;
  int chunk_count = 0;
  float* kept =
      nullptr;  // (kMostWaiting, rows, panels, kPanel), place_stride from a place to the next
  std::ptrdiff_t place_stride = 0;
  int outs = 0;        // outputs wanted of the panels; of the last one at least 1
  float* y = nullptr;  // written with the chunk that ends the sum
  std::ptrdiff_t y_stride = 0;
  const float* scales = nullptr;  // (outs) of i8 weights, or null
  const float* bias = nullptr;    // (outs), added last, or null
};

struct LinearTiles {
  // Packs a chunk of one row, step after step. Returns what the packed values are to be multiplied
  // by.
  float (*pack)(const float* x, void* to, int count) = nullptr;
  int unit = 4;  // bytes of a packed step of one row
  int max_rows = 0;
  // by rows, 1 .. max_rows, and panels, 1 .. panels_at_once(rows)
  void (*tile[kMostRows + 1][kMostPanels + 1])(const LinearTile&) = {};

  int panels_at_once(int rows) const {
    int panels = 1;
    while (panels < kMostPanels && tile[rows][panels + 1]) ++panels;
    return panels;
  }
};

// Tiles of the best vector instructions this CPU has.
const LinearTiles& vector_tiles(Dtype dtype);
// For i8, tiles of instructions that multiply and add pairs of 16-bit integers at once; null where
// there are none.
const LinearTiles* int8_dot_tiles();

// Packs a chunk of x as 16-bit integers for i8 weights; returns their scale, NaN if the chunk holds
// a value that is not finite.
float pack_quanta(const float* x, void* to, int count);

// How weights are fetched ahead of their use: a line of every `every` bytes, `distance` before it
// is read. One or two rows are as fast as memory and the hardware fetches well for them. Three or
// four fall behind it: a line now and then tells it where to go on, and a request for each would
// only take the place of a load. More rows take longer over a line, and their loads come in bursts.
// A line of int8 is worth two rows' work for one.
struct AheadPlan {
  std::ptrdiff_t distance, every;
};
constexpr AheadPlan ahead_plan(int rows, Dtype dtype) {
  const int work = dtype == Dtype::i8 ? 2 * rows : rows;
  return work <= 2   ? AheadPlan{2 << 10, 64}
         : work <= 4 ? AheadPlan{4 << 10, 256}
                     : AheadPlan{16 << 10, 64};
}

// Of several panels each is a stream of its own, which the hardware follows unless the rows' work
// keeps it waiting: then a line is asked for this long before it is read.
constexpr std::ptrdiff_t kStreamAhead = 2 << 10;
template <int kRows, int kPanels>
[[gnu::always_inline]] inline void fetch_stream(const void* weight) {
  if constexpr (kPanels > 1 && kRows > 2)
    __builtin_prefetch(static_cast<const char*>(weight) + kStreamAhead, 0, 2);
}

constexpr int kGroup = 4;  // steps between two looks at what is to be fetched

// What falls to a step of the group, of `lines` lines from `ahead` on. Always inlined: to GCC a
// function that only fetches has no effect, and a call of it goes away.
template <int kRows, Dtype kDtype>
[[gnu::always_inline]] inline void fetch_ahead(const char* ahead, int lines, int step) {
  constexpr std::ptrdiff_t kEvery = ahead_plan(kRows, kDtype).every,
                           kStep = kPanel * step_of(kDtype) * size_of(kDtype);
  for (std::ptrdiff_t at = kStep * step; at < kStep * (step + 1); at += 64)
    if (at % kEvery == 0 && at / kEvery < lines) __builtin_prefetch(ahead + at, 0, 2);
}

namespace cpu {
void linear(const Linear& p, ThreadPool& pool, const LinearTiles& tiles);
}  // namespace cpu

}  // namespace dex
