#include "kernels/linear.h"

#include <catch2/catch.hpp>

#include "kernels/cpu/linear_tiles.h"
#include "tests/kernels/support.h"

namespace dex {
namespace {

using test::bits_of;

constexpr Dtype kAllTypes[] = {Dtype::f32, Dtype::bf16, Dtype::i8};

// Each instruction set, then the dot products of this CPU if it has them.
bool use_dot = false;
void with_all_tiles(const std::function<void()>& body) {
  test::on_every_target(body);
  use_dot = true;
  if (int8_dot_tiles()) body();
  use_dot = false;
}

void linear(const Linear& p, ThreadPool& pool) {
  const LinearTiles* dot = use_dot && p.dtype == Dtype::i8 ? int8_dot_tiles() : nullptr;
  cpu::linear(p, pool, dot ? *dot : vector_tiles(p.dtype));
}

struct Problem {
  int rows, in, out;
  Dtype dtype;
  int unit = kInputChunk;
  bool fused = true;  // products are added with one rounding
  std::vector<float> x, bias;
  test::Stored weight;
  std::vector<std::int8_t> integers;  // i8: the weight is these times scales
  std::vector<float> scales;
  std::vector<char> packed;

  Problem(int rows, int in, int out, Dtype dtype)
      : rows(rows),
        in(in),
        out(out),
        dtype(dtype),
        x(test::random_floats(std::size_t(rows) * in, 1)),
        bias(test::random_floats(out, 2)) {
    if (dtype == Dtype::i8) {
      std::minstd_rand generator(5);
      for (std::size_t i = 0; i < std::size_t(out) * in; ++i)
        integers.push_back(std::int8_t(int(generator() % 255) - 127));
      for (int o = 0; o < out; ++o) scales.push_back(0.001f * float(1 + generator() % 100));
    } else {
      weight = test::stored(test::random_floats(std::size_t(out) * in, 3), dtype);
    }
    pack();
  }

  const void* plain() const { return dtype == Dtype::i8 ? integers.data() : weight.memory(); }
  void pack() { packed = packed_rows(0, out); }
  std::vector<char> packed_rows(int first, int count) const {
    std::vector<char> panels(std::size_t(packed_elements(count, in, dtype) * size_of(dtype)));
    pack_panels(static_cast<const char*>(plain()) + std::size_t(first) * in * size_of(dtype),
                panels.data(), count, in, dtype);
    return panels;
  }

  Linear linear_of(const float* rows_of_x, float* y, int count, bool with_bias) const {
    return {.x = rows_of_x,
            .weight = packed.data(),
            .bias = with_bias ? bias.data() : nullptr,
            .y = y,
            .rows = count,
            .in = in,
            .out = out,
            .dtype = dtype,
            .scales = dtype == Dtype::i8 ? scales.data() : nullptr,
            .unit = unit};
  }

  std::vector<float> run(int first, int count, int threads, bool with_bias = true) const {
    std::vector<float> y(std::size_t(count) * out, std::nanf(""));
    ThreadPool pool(threads);
    linear(linear_of(x.data() + std::size_t(first) * in, y.data(), count, with_bias), pool);
    return y;
  }
};

void check_against_float64(const Problem& p, bool with_bias) {
  const auto y = p.run(0, p.rows, 2, with_bias);
  const auto x = test::stored(p.x, p.dtype).values;
  double worst = 0;
  for (int r = 0; r < p.rows; ++r) {
    for (int o = 0; o < p.out; ++o) {
      double sum = with_bias ? p.bias[o] : 0, size = std::abs(sum) + 1e-30;
      for (int k = 0; k < p.in; ++k) {
        const double term = double(x[r * p.in + k]) * p.weight.values[o * p.in + k];
        sum += term;
        size += std::abs(term);
      }
      worst = std::max(worst, std::abs(y[r * p.out + o] - sum) / size);
    }
  }
  // Products of bf16 are exact in float: only the float sums round, for either type.
  CHECK(worst <= test::tolerance(Dtype::f32));
}

TEST_CASE("linear agrees with float64 for odd and even sizes") {
  with_all_tiles([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const int in : {1, 3, 16, 31, 33, 64, 95, 576, 1025, 2077})
        for (const int out : {1, 2, 5, 8, 13, 33})
          for (const int rows : {1, 2, 7, 13}) {
            CAPTURE(in, out, rows, name_of(dtype));
            check_against_float64(Problem(rows, in, out, dtype), (in + out) % 2 == 0);
          }
  });
}

// The cut spelled out: eight parts, as even as whole units allow; chunks of 512 from each one's
// first element on.
struct Cut {
  int in, unit;
  int begin(int part) const { return std::min(in, (in + unit - 1) / unit * part / 8 * unit); }

  // The sum of parts [first, last), whose chunks have the sums that chunk(begin, end) gives.
  template <class Chunk>
  float sum(const Chunk& chunk, int first = 0, int last = 8) const {
    if (last - first > 1) {
      const int middle = (first + last) / 2;
      return sum(chunk, first, middle) + sum(chunk, middle, last);
    }
    float part = -0.0f;  // of an empty part
    for (int k = begin(first); k < begin(last); k += 512) {
      const float value = chunk(k, std::min(begin(last), k + 512));
      part = k == begin(first) ? value : part + value;
    }
    return part;
  }
};

// One product of f32 or i8 by its definition, before scales and bias.
float defined_sum(const Problem& p, int row, int output, PartShare share = {}) {
  const float* x = p.x.data() + std::size_t(row) * p.in;
  const std::size_t at = std::size_t(output) * p.in;
  const auto f32 = [&](int begin, int end) {
    float sum = 0;
    for (int k = begin; k < end; ++k) {
      const float w = p.weight.values[at + k];
      sum = p.fused ? std::fma(x[k], w, sum) : sum + x[k] * w;
    }
    return sum;
  };
  // integers of a chunk, summed in 64 bits
  const auto i8 = [&](int begin, int end) {
    float largest = 0;
    for (int k = begin; k < end; ++k) largest = std::max(largest, std::abs(x[k]));
    const float per_unit = largest < 1e-30f ? 0 : 32767 / largest;
    std::int64_t sum = 0;
    for (int k = begin; k < end; ++k) sum += std::lrint(x[k] * per_unit) * p.integers[at + k];
    return float(sum) * (largest / 32767);
  };
  const Cut cut{p.in, p.unit};
  return p.dtype == Dtype::i8 ? cut.sum(i8, share.first, share.last)
                              : cut.sum(f32, share.first, share.last);
}
float defined(const Problem& p, int row, int output) {
  const float sum = defined_sum(p, row, output);
  return (p.dtype == Dtype::i8 ? sum * p.scales[output] : sum) + p.bias[output];
}

// Whether the instruction set in use multiplies and adds f32 with one rounding; plain loops, which
// stand in for sets that the kernels are not built for, take two.
bool fuses() {
  Problem p(1, 2, 1, Dtype::f32);
  p.x = p.weight.values = {1, 1 + 0x1p-12f};
  p.weight.values[0] = -1;
  p.pack();
  const float y = p.run(0, 1, 1, /*with_bias=*/false)[0];
  REQUIRE((y == 0x1p-11f || y == 0x1p-11f + 0x1p-24f));
  return y != 0x1p-11f;
}

TEST_CASE("linear on float weights has the bits of its definition on every instruction set") {
  with_all_tiles([] {
    for (const auto& [in, unit] : {std::pair{1, 64},
                                   {95, 64},
                                   {576, 512},
                                   {577, 64},
                                   {1536, 64},
                                   {2500, 512},
                                   {5000, 512},
                                   {384, 64},
                                   {600, 100},
                                   {4097, 64},
                                   {11008, 64},
                                   {14336, 64}})
      for (const int rows : {1, 13}) {
        Problem p(rows, in, 33, Dtype::f32);
        p.unit = unit;
        p.fused = fuses();
        const auto y = p.run(0, rows, 1);
        CAPTURE(in, unit, rows);
        for (int r = 0; r < rows; ++r)
          for (const int o : {0, 15, 16, 31, 32})
            REQUIRE(bits_of(&y[r * 33 + o], 1)[0] ==
                    std::bit_cast<std::uint32_t>(defined(p, r, o)));
      }
  });
}

TEST_CASE(
    "linear on int8 weights has the bits of its integer arithmetic on every instruction set") {
  with_all_tiles([] {
    for (const int in : {1, 31, 64, 95, 511, 512, 513, 576, 4000, 11008})
      for (const int out : {1, 9, 32, 33}) {
        Problem p(4, in, out, Dtype::i8);
        // a row of zeros
        std::fill(p.x.begin() + in, p.x.begin() + 2 * in, 0.0f);
        // the largest sums
        for (int k = 0; k < in; ++k) p.x[2 * std::size_t(in) + k] = k % 3 ? -3e30f : 3e30f;
        for (int k = 0; k < in; ++k) p.integers[k] = k % 3 ? -127 : 127;
        p.pack();
        const auto y = p.run(0, 4, 1);
        CAPTURE(in, out);
        for (int r = 0; r < 4; ++r)
          for (int o = 0; o < out; ++o)
            REQUIRE(bits_of(&y[r * out + o], 1)[0] ==
                    std::bit_cast<std::uint32_t>(defined(p, r, o)));
      }
  });
}

TEST_CASE("linear on int8 weights is near the float product of what the integers mean") {
  Problem p(3, 3000, 20, Dtype::i8);
  const auto y = p.run(0, 3, 2, /*with_bias=*/false);
  for (int r = 0; r < 3; ++r)
    for (int o = 0; o < 20; ++o) {
      double sum = 0, squares = 0;
      for (int k = 0; k < 3000; ++k) {
        const double w = double(p.integers[o * 3000 + k]) * p.scales[o];
        sum += p.x[r * 3000 + k] * w;
        squares += w * w;
      }
      // Each x is off by at most half a step of 4.5 / 32767; the errors are independent.
      CHECK(std::abs(y[r * 20 + o] - sum) <
            5 * std::sqrt(squares / 12) * (4.5 / 32767) + 1e-6 * std::sqrt(squares * 3000));
    }
}

TEST_CASE(
    "linear gives a row the same bits for every number of rows, place and number of threads") {
  with_all_tiles([] {
    for (const Dtype dtype : kAllTypes)
      for (const auto& [in, out] : {std::pair{67, 21}, {576, 100}, {1300, 37}}) {
        const Problem p(128, in, out, dtype);
        const auto all = bits_of(p.run(0, 128, 1));
        CHECK(bits_of(p.run(0, 128, 2)) == all);
        CHECK(bits_of(p.run(0, 128, 3)) == all);
        for (int rows = 1; rows <= 128; ++rows) {
          const int first = (rows * 37) % (129 - rows);
          const auto some = bits_of(p.run(first, rows, 1));
          const std::vector<std::uint32_t> same(all.begin() + std::ptrdiff_t(first) * out,
                                                all.begin() + std::ptrdiff_t(first + rows) * out);
          CAPTURE(in, rows, first, name_of(dtype));
          REQUIRE(some == same);
        }
      }
  });
}

TEST_CASE("linear gives an output the same bits whatever the other outputs") {
  with_all_tiles([] {
    for (const Dtype dtype : kAllTypes) {
      const Problem p(5, 576, 40, dtype);
      const auto all = p.run(0, 5, 1);
      for (int o = 0; o < 40; ++o) {
        std::vector<float> y(5);
        ThreadPool pool(1);
        Linear one = p.linear_of(p.x.data(), y.data(), 5, true);
        const auto alone = p.packed_rows(o, 1);
        one.weight = alone.data();
        one.bias += o;
        if (one.scales) one.scales += o;
        one.out = 1;
        linear(one, pool);
        for (int r = 0; r < 5; ++r) REQUIRE(bits_of(&y[r], 1) == bits_of(&all[r * 40 + o], 1));
      }
    }
  });
}

// Columns [begin, end) of rows of `in` elements.
std::vector<char> columns_of(const void* rows, std::size_t count, int in, int begin, int end,
                             int bytes) {
  std::vector<char> some;
  for (std::size_t r = 0; r < count; ++r) {
    const char* row = static_cast<const char*>(rows) + r * in * bytes;
    some.insert(some.end(), row + std::ptrdiff_t(begin) * bytes, row + std::ptrdiff_t(end) * bytes);
  }
  return some;
}

// (rows, out) of the parts of one share, from nothing but its columns.
std::vector<float> run_share(const Problem& p, PartShare share, int first_row, int rows) {
  const Cut cut{p.in, p.unit};
  const int begin = cut.begin(share.first), end = cut.begin(share.last);
  const auto x = columns_of(p.x.data() + std::size_t(first_row) * p.in, rows, p.in, begin, end, 4);
  const auto weight = columns_of(p.plain(), p.out, p.in, begin, end, size_of(p.dtype));
  std::vector<char> packed(packed_elements(p.out, end - begin, p.dtype) * size_of(p.dtype) + 1);
  pack_panels(weight.data(), packed.data(), p.out, end - begin, p.dtype);
  std::vector<float> x_floats(x.size() / 4), y(std::size_t(rows) * p.out, std::nanf(""));
  std::memcpy(x_floats.data(), x.data(), x.size());
  Linear l = p.linear_of(x_floats.data(), y.data(), rows, true);
  l.weight = packed.data();
  l.share = share;
  ThreadPool pool(1);
  linear(l, pool);
  return y;
}

struct Sizes {
  int in, unit;
};
// SmolLM2's out (9 heads) and down, 6 heads, one head, Llama 8B's down and out, an uneven one, odd
// ones
constexpr Sizes kShared[] = {{576, 64},   {1536, 64},  {384, 64}, {64, 64},   {14336, 64},
                             {4096, 128}, {11008, 64}, {640, 80}, {1301, 64}, {33, 8}};

TEST_CASE("partial sums of 2, 4 or 8 shares finish the bits of the whole") {
  with_all_tiles([] {
    for (const Dtype dtype : kAllTypes)
      for (const auto& [in, unit] : kShared)
        for (const int rows : {1, 3, 14}) {
          Problem p(rows, in, 35, dtype);
          p.unit = unit;
          const auto whole = bits_of(p.run(0, rows, 1));
          for (const int shares : {2, 4, 8}) {
            std::vector<float> partials, y(std::size_t(rows) * p.out, std::nanf(""));
            for (int s = 0; s < shares; ++s) {
              const PartShare share{8 / shares * s, 8 / shares * (s + 1)};
              const auto some = run_share(p, share, 0, rows);
              // a row alone has the bits it has among others
              const auto last = run_share(p, share, rows - 1, 1);
              REQUIRE(bits_of(last) == bits_of(some.data() + (rows - 1) * p.out, p.out));
              partials.insert(partials.end(), some.begin(), some.end());
            }
            cpu::finish_linear({.partials = partials.data(),
                                .scales = dtype == Dtype::i8 ? p.scales.data() : nullptr,
                                .bias = p.bias.data(),
                                .y = y.data(),
                                .shares = shares,
                                .rows = rows,
                                .out = p.out});
            CAPTURE(in, unit, rows, shares, name_of(dtype));
            REQUIRE(bits_of(y) == whole);
          }
        }
  });
}

TEST_CASE("a share's sum is that of its parts, without scales and bias") {
  with_all_tiles([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::i8})
      for (const auto& [in, unit] : {Sizes{576, 64}, {5000, 8}}) {
        Problem p(2, in, 3, dtype);
        p.unit = unit;
        p.fused = fuses();
        for (const PartShare share : {PartShare{0, 4}, {4, 8}, {2, 4}, {6, 8}, {0, 1}, {7, 8}}) {
          const auto y = run_share(p, share, 0, 2);
          for (int r = 0; r < 2; ++r)
            for (int o = 0; o < 3; ++o)
              REQUIRE(bits_of(&y[r * 3 + o], 1)[0] ==
                      std::bit_cast<std::uint32_t>(defined_sum(p, r, o, share)));
        }
      }
  });
}

TEST_CASE("linear reads x again in every call") {
  with_all_tiles([] {
    for (const Dtype dtype : kAllTypes)
      for (const int rows : {1, 4, 30}) {
        const Problem p(rows, 576, 200, dtype);
        const std::vector<float> other = test::random_floats(p.x.size(), 77);
        for (const int threads : {1, 3}) {
          ThreadPool pool(threads);
          std::vector<float> x = other, y(std::size_t(rows) * 200), expected = p.run(0, rows, 1);
          linear(p.linear_of(x.data(), y.data(), rows, true), pool);
          REQUIRE(bits_of(y) != bits_of(expected));
          x = p.x;  // where the other values lay
          linear(p.linear_of(x.data(), y.data(), rows, true), pool);
          CAPTURE(rows, threads, name_of(dtype));
          REQUIRE(bits_of(y) == bits_of(expected));
        }
      }
  });
}

TEST_CASE("linear of no rows writes nothing") {
  ThreadPool pool(2);
  float y = 7;
  const float one = 1;
  cpu::linear({&one, &one, nullptr, &y, 0, 1, 1, Dtype::f32}, pool);
  CHECK(y == 7);
}

TEST_CASE("linear lets a NaN through to its own row alone") {
  with_all_tiles([] {
    for (const Dtype dtype : kAllTypes) {
      Problem p(6, 70, 9, dtype);
      const auto before = bits_of(p.run(0, 6, 1));
      p.x[3 * 70 + 69] = std::nanf("");
      const auto after = p.run(0, 6, 1);
      for (int i = 0; i < 6 * 9; ++i) {
        if (i / 9 == 3)
          CHECK(std::isnan(after[i]));
        else
          CHECK(bits_of(&after[i], 1)[0] == before[i]);
      }
    }
  });
}

}  // namespace
}  // namespace dex
