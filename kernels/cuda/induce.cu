#include "kernels/induce.h"

#include <algorithm>

#include "kernels/ceil_div.h"
#include "kernels/row_ops.h"

namespace dex::cuda {
namespace {

// What lies where in the workspace: the normed rows, the inner rows, then what the linears need.
struct Layout {
  Linear up, down;
  std::size_t inner_at = 0, rest_at = 0, bytes = 0;
};

Layout layout_of(const InduceRows& p, char* memory) {
  const auto aligned = [](std::size_t floats) { return round_up(floats * sizeof(float), 128); };
  const std::size_t rows = std::size_t(p.rows);
  Layout l;
  l.inner_at = aligned(rows * std::size_t(p.hidden));
  l.rest_at = l.inner_at + aligned(rows * std::size_t(p.width));
  auto* normed = reinterpret_cast<float*>(memory);
  auto* inner = reinterpret_cast<float*>(memory + l.inner_at);
  l.up.x = normed, l.up.weight = p.up, l.up.bias = p.up_bias, l.up.y = inner;
  l.up.rows = p.rows, l.up.in = p.hidden, l.up.out = p.width, l.up.dtype = p.dtype;
  l.down.x = inner, l.down.weight = p.down, l.down.bias = p.down_bias, l.down.y = p.y;
  l.down.rows = p.rows, l.down.in = p.width, l.down.out = p.hidden, l.down.dtype = p.dtype;
  l.bytes = l.rest_at + std::max(linear_workspace(l.up), linear_workspace(l.down));
  return l;
}

}  // namespace

std::size_t induce_rows_workspace(const InduceRows& p) {
  return p.rows <= 0 ? 0 : layout_of(p, nullptr).bytes;
}

int induce_rows(const InduceRows& p, Workspace workspace, Stream stream) {
  if (p.rows <= 0) return 0;
  const Layout l = layout_of(p, static_cast<char*>(workspace.memory));
  if (workspace.bytes < l.bytes) return kTooSmall;
  const Workspace rest{static_cast<char*>(workspace.memory) + l.rest_at,
                       workspace.bytes - l.rest_at};
  int error = rms_norm({.x = p.h,
                        .weight = p.norm,
                        .y = const_cast<float*>(l.up.x),
                        .rows = p.rows,
                        .size = p.hidden,
                        .eps = p.eps},
                       stream);
  if (!error && p.y != p.h)
    error = convert(p.h, p.y, std::int64_t{p.rows} * p.hidden, Dtype::f32, stream);
  if (!error) error = linear(l.up, rest, stream);
  if (!error)
    error =
        silu_mul({.gate = l.up.y, .y = l.up.y, .count = std::int64_t{p.rows} * p.width}, stream);
  if (!error) error = linear_add(l.down, p.alpha, rest, stream);
  return error;
}

}  // namespace dex::cuda
