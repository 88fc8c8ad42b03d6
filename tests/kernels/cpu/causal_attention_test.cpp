#include "kernels/causal_attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "kernels/cpu/causal_tiles.h"
#include "tests/kernels/support.h"

namespace dex {
namespace {

struct Shape {
  int heads, kv_heads, head_dim, rows;
  int width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// One KV head's part of a row of (queries, keys, values).
std::vector<float> part(const std::vector<float>& qkv, const Shape& s, int first_head, int heads) {
  std::vector<float> taken;
  for (int r = 0; r < s.rows; ++r) {
    const auto begin = qkv.begin() + std::ptrdiff_t{r} * s.width() + first_head * s.head_dim;
    taken.insert(taken.end(), begin, begin + heads * s.head_dim);
  }
  return taken;
}

// All rows, in blocks of `step`. No tiles: those that the kernel chooses.
std::vector<float> attend(const test::Stored& qkv, const Shape& s, Dtype dtype, int step,
                          const CausalTiles* tiles) {
  test::Stored out =
      test::stored(std::vector<float>(std::size_t(s.rows) * s.heads * s.head_dim), dtype);
  CausalAttention p{.qkv = qkv.memory(),
                    .out = out.memory(),
                    .rows = s.rows,
                    .heads = s.heads,
                    .kv_heads = s.kv_heads,
                    .head_dim = s.head_dim,
                    .scale = 1 / std::sqrt(float(s.head_dim)),
                    .dtype = dtype};
  const std::size_t bytes =
      tiles ? cpu::causal_packed_bytes(p, *tiles) : cpu::causal_packed_bytes(p);
  std::vector<float> memory(bytes / sizeof(float) + 16, std::nanf(""));
  p.packed = memory.data() +
             (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64 / sizeof(float);
  for (p.kv_head = 0; p.kv_head < s.kv_heads; ++p.kv_head) {
    tiles ? cpu::pack_causal(p, *tiles) : cpu::pack_causal(p);
    for (int first = 0; first < s.rows; first += step) {
      const int end = std::min(s.rows, first + step);
      tiles ? cpu::attend_causally(p, first, end, *tiles) : cpu::attend_causally(p, first, end);
    }
  }
  for (std::size_t i = 0; i < out.narrow.size(); ++i)
    out.values[i] = test::from_bf16(out.narrow[i]);
  return out.values;
}

void check(const Shape& s, Dtype dtype, const CausalTiles* tiles) {
  CAPTURE(s.heads, s.kv_heads, s.head_dim, s.rows, name_of(dtype));
  const auto qkv =
      test::stored(test::random_floats(std::size_t(s.rows) * s.width(), 5, 1.5f), dtype);
  const auto q = part(qkv.values, s, 0, s.heads), k = part(qkv.values, s, s.heads, s.kv_heads),
             v = part(qkv.values, s, s.heads + s.kv_heads, s.kv_heads);
  const auto out = attend(qkv, s, dtype, 13, tiles);
  std::vector<int> seen;
  for (int r = 0; r < s.rows; ++r) {
    seen.push_back(r);
    const std::size_t begin = std::size_t(r) * s.heads * s.head_dim;
    const auto want = test::attention(k, v, &q[begin], s.heads, s.kv_heads, s.head_dim, seen);
    for (std::size_t i = 0; i < want.size(); ++i)
      REQUIRE(std::abs(out[begin + i] - want[i].value) <=
              5 * test::tolerance(dtype) * want[i].size);
  }
}

const std::vector<Shape> kShapes{{3, 1, 64, 150}, {4, 2, 10, 40}, {2, 2, 128, 70},
                                 {1, 1, 7, 9},    {6, 2, 80, 1},  {9, 3, 64, 65}};

}  // namespace

TEST_CASE("causal attention is the softmax formula in float64") {
  for (const Shape& s : kShapes)
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      test::on_every_target([&] { check(s, dtype, &vector_causal_tiles()); });
      check(s, dtype, nullptr);
    }
}

TEST_CASE("a row of causal attention has the same bits in any cut, and whatever follows it") {
  const Shape s{3, 1, 64, 90}, shorter{3, 1, 64, 61};
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    CAPTURE(name_of(dtype));
    auto values = test::random_floats(std::size_t(s.rows) * s.width(), 6, 2);
    const auto want = attend(test::stored(values, dtype), s, dtype, s.rows, nullptr);
    for (const int step : {1, 5, 6, 48})
      CHECK(attend(test::stored(values, dtype), s, dtype, step, nullptr) == want);
    const std::size_t kept = std::size_t(shorter.rows) * s.heads * s.head_dim;
    values.resize(std::size_t(shorter.rows) * s.width());
    const auto alone = attend(test::stored(values, dtype), shorter, dtype, 6, nullptr);
    CHECK(
        std::equal(alone.begin(), alone.end(), want.begin(), want.begin() + std::ptrdiff_t(kept)));
  }
}

TEST_CASE("NaN in a key shows in every row that sees it") {
  const Shape s{2, 1, 16, 20};
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    auto values = test::random_floats(std::size_t(s.rows) * s.width(), 7);
    values[std::size_t(4) * s.width() + std::size_t(s.heads) * s.head_dim + 3] = std::nanf("");
    const auto out = attend(test::stored(values, dtype), s, dtype, 6, nullptr);
    const std::ptrdiff_t row = s.heads * s.head_dim;
    CHECK(std::all_of(out.begin() + 4 * row, out.end(), [](float x) { return std::isnan(x); }));
  }
}

}  // namespace dex
