#include "kernels/linear.h"

#include <catch2/catch.hpp>

#include "kernels/linear_tiles.h"
#include "tests/kernels/support.h"

namespace dex {
namespace {

using test::bits_of;

// Each instruction set, then the bf16 products of this CPU if it has them.
bool use_dot = false;
void with_all_tiles(const std::function<void()>& body) {
  test::on_every_target(body);
  use_dot = true;
  if (bf16_dot_tiles()) body();
  use_dot = false;
}

void linear(const Linear& p, Workers& workers) {
  cpu::linear(p, workers, use_dot && p.dtype == Dtype::bf16 ? *bf16_dot_tiles() : vector_tiles(p.dtype));
}

struct Problem {
  int rows, in, out;
  Dtype dtype;
  std::vector<float> x, bias;
  test::Stored weight;

  Problem(int rows, int in, int out, Dtype dtype)
      : rows(rows), in(in), out(out), dtype(dtype), x(test::random_floats(std::size_t(rows) * in, 1)),
        bias(test::random_floats(out, 2)), weight(test::stored(test::random_floats(std::size_t(out) * in, 3), dtype)) {}

  std::vector<float> run(int first, int count, int threads, bool with_bias = true) const {
    std::vector<float> y(std::size_t(count) * out, std::nanf(""));
    Workers workers(threads);
    linear({x.data() + std::size_t(first) * in, weight.memory(), with_bias ? bias.data() : nullptr, y.data(), count,
                 in, out, dtype}, workers);
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

TEST_CASE("linear gives a row the same bits for every number of rows, place and number of threads") {
  with_all_tiles([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const auto& [in, out] : {std::pair{67, 21}, std::pair{576, 100}, std::pair{1300, 37}}) {
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
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const Problem p(5, 576, 40, dtype);
      const auto all = p.run(0, 5, 1);
      for (int o = 0; o < 40; ++o) {
        std::vector<float> y(5);
        Workers workers(1);
        const char* weight = static_cast<const char*>(p.weight.memory()) + std::size_t(o) * 576 * size_of(dtype);
        linear({p.x.data(), weight, p.bias.data() + o, y.data(), 5, 576, 1, dtype}, workers);
        for (int r = 0; r < 5; ++r) REQUIRE(bits_of(&y[r], 1) == bits_of(&all[r * 40 + o], 1));
      }
    }
  });
}

TEST_CASE("linear of no rows writes nothing") {
  Workers workers(2);
  float y = 7;
  const float one = 1;
  cpu::linear({&one, &one, nullptr, &y, 0, 1, 1, Dtype::f32}, workers);
  CHECK(y == 7);
}

TEST_CASE("linear lets a NaN through to its own row alone") {
  with_all_tiles([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      Problem p(6, 70, 9, dtype);
      const auto before = bits_of(p.run(0, 6, 1));
      p.x[3 * 70 + 69] = std::nanf("");
      const auto after = p.run(0, 6, 1);
      for (int i = 0; i < 6 * 9; ++i) {
        if (i / 9 == 3) CHECK(std::isnan(after[i]));
        else CHECK(bits_of(&after[i], 1)[0] == before[i]);
      }
    }
  });
}

}  // namespace
}  // namespace dex
