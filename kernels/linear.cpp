#include "kernels/linear.h"

#include <algorithm>
#include <vector>

#include "kernels/linear_tiles.h"

namespace dex::cpu {
namespace {

constexpr int kRowTile = 128;  // rows of x kept in the second cache while a part's weights pass

struct Job {
  const Linear& p;
  const LinearTiles& tiles;
  const char* x;  // packed rows
  std::ptrdiff_t x_stride;
};

const void* weight_at(const Linear& p, int out, int k) {
  return static_cast<const char*>(p.weight) + (static_cast<std::ptrdiff_t>(out) * p.in + k) * size_of(p.dtype);
}

// Blocks of nearly equal size, the larger first.
int block_rows(int rows, int max_rows) {
  const int blocks = (rows + max_rows - 1) / max_rows;
  return (rows + blocks - 1) / blocks;
}

// Rows [row, row_end) x outputs [out, out + outs) x chunk k; the weights stay in the first cache between row blocks.
void rows_of_tile(const Job& job, LinearTile tile, int row, int row_end, int out, int k) {
  const Linear& p = job.p;
  while (row < row_end) {
    const int rows = block_rows(row_end - row, job.tiles.max_rows);
    tile.x = job.x + (row * job.x_stride + k) * job.tiles.packed_size;
    tile.y = p.y + static_cast<std::ptrdiff_t>(row) * p.out + out;
    job.tiles.tile[rows](tile);
    row += rows;
    tile.ahead = 0;
  }
}

void outputs(const Job& job, int out, int out_end, int row, int row_end) {
  const Linear& p = job.p;
  const int step = job.tiles.outs[block_rows(row_end - row, job.tiles.max_rows)];
  LinearTile tile;
  tile.x_stride = job.x_stride;
  tile.weight_stride = p.in;
  tile.y_stride = p.out;
  for (int k = 0; k < p.in; k += kChunk) {
    tile.count = std::min(kChunk, p.in - k);
    tile.first = k == 0;
    for (int o = out; o < out_end; o += step) {
      tile.weight = weight_at(p, o, k);
      tile.outs = std::min(step, out_end - o);
      tile.ahead = o + 2 * step <= p.out ? static_cast<std::ptrdiff_t>(step) * p.in : 0;
      tile.bias = p.bias && k + kChunk >= p.in ? p.bias + o : nullptr;
      rows_of_tile(job, tile, row, row_end, o, k);
    }
  }
}

}  // namespace

void linear(const Linear& p, Workers& workers) {
  if (p.rows <= 0 || p.out <= 0) return;
  const LinearTiles& tiles = linear_tiles(p.dtype);
  const std::ptrdiff_t stride = (p.in + kPad - 1) / kPad * kPad;
  thread_local std::vector<char> scratch;
  scratch.resize(static_cast<std::size_t>(stride) * p.rows * tiles.packed_size + 64);
  char* packed = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64);
  for (int r = 0; r < p.rows; ++r)
    tiles.pack(p.x + static_cast<std::ptrdiff_t>(r) * p.in, packed + r * stride * tiles.packed_size, p.in);

  const Job job{p, tiles, packed, stride};
  const int wanted = p.out / (4 * workers.threads());
  const int part = std::clamp(wanted / 8 * 8, 8, 64);
  workers.run((p.out + part - 1) / part, [&](int i) {
    for (int row = 0; row < p.rows; row += kRowTile)
      outputs(job, i * part, std::min(p.out, (i + 1) * part), row, std::min(p.rows, row + kRowTile));
  });
}

}  // namespace dex::cpu
