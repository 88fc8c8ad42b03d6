#include "kernels/linear.h"

#include <algorithm>
#include <limits>

#include "tests/kernels/cuda/support.h"

namespace dex {
namespace {

using test::bits_of;
using test::part;

struct Problem {
  int rows, in, out;
  Dtype dtype;
  std::vector<float> x, scales, bias;
  test::Kept weight;
  test::DeviceArray<float> device_scales, device_bias;

  Problem(int rows, int in, int out, Dtype dtype, bool integers = false)
      : rows(rows),
        in(in),
        out(out),
        dtype(dtype),
        x(integers ? test::random_integers(count(rows, in), 1, 7)
                   : test::random_floats(count(rows, in), 1)),
        scales(test::random_floats(count(1, out), 4)),
        bias(test::random_integers(count(1, out), 2, 9)),
        weight(integers || dtype == Dtype::i8
                   ? test::random_integers(count(out, in), 3, integers ? 7 : 127)
                   : test::random_floats(count(out, in), 3),
               dtype),
        device_scales(scales),
        device_bias(bias) {}

  static std::size_t count(int a, int b) { return std::size_t(a) * std::size_t(b); }

  bool every_schedule = true;
  int unit = kInputChunk;

  // Rows first .. first + count of y, outputs from first_out to the end; y holds `before` where
  // linear_add adds to it.
  std::vector<float> run(int first, int rows_run, bool with_bias = true, int first_out = 0,
                         const std::vector<float>* before = nullptr) const {
    const test::DeviceArray<float> device_x(part(x, count(first, in), count(rows_run, in)));
    const int outs = out - first_out;
    return test::in_schedules(every_schedule, [&] {
      const test::DeviceArray<float> y(
          before ? *before : std::vector<float>(count(rows_run, outs), std::nanf("")));
      Linear p;
      p.x = device_x.get(), p.y = y.get(), p.rows = rows_run, p.in = in, p.out = outs,
      p.dtype = dtype, p.unit = unit;
      p.weight = static_cast<unsigned char*>(weight.data()) +
                 count(first_out, in) * std::size_t(size_of(dtype));
      if (dtype == Dtype::i8) p.scales = device_scales.get() + first_out;
      if (with_bias) p.bias = device_bias.get() + first_out;
      const test::Workspace workspace(cuda::linear_workspace(p));
      REQUIRE((before ? cuda::linear_add(p, 0.3f, workspace.get(), nullptr)
                      : cuda::linear(p, workspace.get(), nullptr)) == 0);
      return y.read();
    });
  }
  std::vector<float> run() const { return run(0, rows); }

  // The partial sums of rows first .. first + count from the columns of a share alone.
  std::vector<float> run_share(PartShare share, int first, int rows_run) const {
    Linear p;
    p.rows = rows_run, p.in = in, p.out = out, p.dtype = dtype, p.unit = unit, p.share = share;
    const int begin = p.parts().begin(share.first);
    const auto columns = [&](const std::vector<float>& all, int first_row, int count_rows) {
      std::vector<float> some;
      for (int r = first_row; r < first_row + count_rows; ++r) {
        const auto row = part(all, count(r, in) + std::size_t(begin), std::size_t(p.columns()));
        some.insert(some.end(), row.begin(), row.end());
      }
      return some;
    };
    const test::DeviceArray<float> device_x(columns(x, first, rows_run));
    const test::Kept own(columns(weight.values, 0, out), dtype);
    return test::in_schedules(every_schedule, [&] {
      const test::DeviceArray<float> y(std::vector<float>(count(rows_run, out), std::nanf("")));
      p.x = device_x.get(), p.y = y.get(), p.weight = own.data();
      p.scales = device_scales.get(), p.bias = device_bias.get();  // wait for the end of the tree
      const test::Workspace workspace(cuda::linear_workspace(p));
      REQUIRE(cuda::linear(p, workspace.get(), nullptr) == 0);
      return y.read();
    });
  }
};

TEST_CASE("partial sums of 2, 4 or 8 shares finish the bits of the whole") {
  struct Sizes {
    int in, unit;
  };
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8})
    // SmolLM2's out and down, 6 heads, Llama 8B's down, an uneven one, and odd ones
    for (const auto& [in, unit] : {Sizes{576, 64},
                                   {1536, 64},
                                   {384, 64},
                                   {14336, 64},
                                   {4096, 128},
                                   {11008, 64},
                                   {1301, 64},
                                   {72, 8},
                                   {4200, 8}})
      for (const int rows : {1, 9}) {
        if (in > 4200 && rows > 1) continue;
        Problem p(rows, in, 5, dtype);
        p.unit = unit;
        p.every_schedule = in < 600;
        const auto whole = bits_of(p.run());
        for (const int shares : {2, 4, 8}) {
          std::vector<float> all;
          for (int s = 0; s < shares; ++s) {
            const PartShare share{8 / shares * s, 8 / shares * (s + 1)};
            const auto some = p.run_share(share, 0, rows);
            if (rows > 1)
              REQUIRE(bits_of(p.run_share(share, rows - 1, 1)) ==
                      bits_of(part(some, Problem::count(rows - 1, p.out), std::size_t(p.out))));
            all.insert(all.end(), some.begin(), some.end());
          }
          const test::DeviceArray<float> partials(all), y(Problem::count(rows, p.out));
          REQUIRE(
              cuda::finish_linear({.partials = partials.get(),
                                   .scales = dtype == Dtype::i8 ? p.device_scales.get() : nullptr,
                                   .bias = p.device_bias.get(),
                                   .y = y.get(),
                                   .shares = shares,
                                   .rows = rows,
                                   .out = p.out},
                                  nullptr) == 0);
          CAPTURE(in, unit, rows, shares, name_of(dtype));
          REQUIRE(bits_of(y.read()) == whole);
        }
      }
}

TEST_CASE("linear of small integers is exact for every place in every tile") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const auto& [rows, in, out] : {std::tuple{1, 64, 1},
                                        {3, 67, 13},
                                        {13, 1100, 70},
                                        {33, 200, 64},
                                        {70, 96, 20},
                                        {130, 40, 66}}) {
      const Problem p(rows, in, out, dtype, true);
      const auto y = p.run();
      CAPTURE(rows, in, out, name_of(dtype));
      bool same = true;
      for (int r = 0; r < rows; ++r)
        for (int o = 0; o < out; ++o) {
          float sum = p.bias[std::size_t(o)];
          for (int k = 0; k < in; ++k)
            sum += p.x[Problem::count(r, in) + std::size_t(k)] *
                   p.weight.values[Problem::count(o, in) + std::size_t(k)];
          same = same && y[Problem::count(r, out) + std::size_t(o)] == sum;
        }
      CHECK(same);
    }
}

TEST_CASE("linear agrees with float64 for odd and even sizes") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const auto& [rows, in, out] :
         {std::tuple{1, 1, 1}, {2, 31, 5}, {9, 576, 40}, {5, 1025, 8}, {3, 2077, 65}}) {
      const Problem p(rows, in, out, dtype);
      const auto y = p.run(0, rows, in % 2 == 0);
      double worst = 0;
      for (int r = 0; r < rows; ++r)
        for (int o = 0; o < out; ++o) {
          double sum = in % 2 == 0 ? p.bias[std::size_t(o)] : 0, size = std::abs(sum) + 1e-30;
          for (int k = 0; k < in; ++k) {
            const float x = p.x[Problem::count(r, in) + std::size_t(k)];
            const double term = double(dtype == Dtype::bf16 ? gpu::to_float(gpu::to_bf16(x)) : x) *
                                p.weight.values[Problem::count(o, in) + std::size_t(k)];
            sum += term, size += std::abs(term);
          }
          worst =
              std::max(worst, std::abs(y[Problem::count(r, out) + std::size_t(o)] - sum) / size);
        }
      CAPTURE(rows, in, out, name_of(dtype));
      CHECK(worst <= 2e-6);
    }
}

// The tree spelled out: eight parts, as even as whole units allow; a part's chunks, of 512 from its
// first element on, are added in order. chunk(begin, end) gives a chunk's sum.
template <class Chunk>
float tree_of(int in, int unit, const Chunk& chunk, int first = 0, int last = 8) {
  if (last - first > 1) {
    const int middle = (first + last) / 2;
    return tree_of(in, unit, chunk, first, middle) + tree_of(in, unit, chunk, middle, last);
  }
  const auto begin = [&](int part) {
    return std::min(in, (in + unit - 1) / unit * part / 8 * unit);
  };
  float sum = -0.0f;  // of an empty part
  for (int k = begin(first); k < begin(last); k += 512) {
    const float value = chunk(k, std::min(begin(last), k + 512));
    sum = k == begin(first) ? value : sum + value;
  }
  return sum;
}

// As cpu::linear defines it: integers of at most 32767 per chunk, sums exact.
float i8_reference(const Problem& p, int row, int out) {
  const auto chunk = [&](int begin, int end) {
    const auto x =
        part(p.x, Problem::count(row, p.in) + std::size_t(begin), std::size_t(end - begin));
    float largest = 0;
    for (float v : x) largest = std::max(largest, std::abs(v));
    const float per_unit = largest < 1e-30f ? 0 : 32767 / largest;
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      sum += std::int64_t(std::nearbyint(x[i] * per_unit)) *
             std::int64_t(p.weight.values[Problem::count(out, p.in) + std::size_t(begin) + i]);
    return float(sum) * (largest / 32767);
  };
  return tree_of(p.in, p.unit, chunk) * p.scales[std::size_t(out)] + p.bias[std::size_t(out)];
}

// Lane l of a warp sums elements l, l + 32, ... of a chunk; halves of the lanes are added.
float f32_reference(const Problem& p, int row, int out) {
  const auto chunk = [&](int begin, int end) {
    std::vector<float> lanes(32);
    for (int k = begin; k < end; ++k) {
      float& lane = lanes[std::size_t(k - begin) % 32];
      lane = std::fma(p.x[Problem::count(row, p.in) + std::size_t(k)],
                      p.weight.values[Problem::count(out, p.in) + std::size_t(k)], lane);
    }
    for (std::size_t n = 16; n > 0; n /= 2)
      for (std::size_t l = 0; l < n; ++l) lanes[l] += lanes[l + n];
    return lanes[0];
  };
  return tree_of(p.in, p.unit, chunk) + p.bias[std::size_t(out)];
}

TEST_CASE("linear of floats has the bits of its definition") {
  for (const auto& [rows, in, out, unit] : {std::tuple{1, 16, 1, 64},
                                            {7, 67, 13, 64},
                                            {3, 576, 9, 64},
                                            {2, 384, 9, 64},
                                            {2, 5000, 9, 8},
                                            {2, 602, 9, 86}}) {
    Problem p(rows, in, out, Dtype::f32);
    p.unit = unit;
    const auto y = p.run();
    CAPTURE(rows, in, out, unit);
    for (int r = 0; r < rows; ++r)
      for (int o = 0; o < out; ++o)
        REQUIRE(y[Problem::count(r, out) + std::size_t(o)] == f32_reference(p, r, o));
  }
}

TEST_CASE("linear of bytes has the bits of its definition") {
  for (const auto& [rows, in, out] : {std::tuple{1, 16, 1},
                                      {7, 67, 13},
                                      {9, 1700, 65},
                                      {33, 256, 20},
                                      {66, 130, 10},
                                      {2, 5000, 3}}) {
    Problem p(rows, in, out, Dtype::i8);
    if (rows == 7) std::fill(p.x.begin(), p.x.begin() + in, 0.0f);
    const auto y = p.run();
    bool same = true;
    for (int r = 0; r < rows; ++r)
      for (int o = 0; o < out; ++o)
        same = same && y[Problem::count(r, out) + std::size_t(o)] == i8_reference(p, r, o);
    CAPTURE(rows, in, out);
    CHECK(same);
  }
}

TEST_CASE("linear gives a row the same bits for every number of rows and place") {
  for (const auto& [in, out, dtype] : {std::tuple{100, 20, Dtype::bf16},
                                       {1100, 70, Dtype::bf16},
                                       {100, 9, Dtype::f32},
                                       {576, 9, Dtype::f32},
                                       {100, 20, Dtype::i8},
                                       {1600, 20, Dtype::i8}}) {
    Problem p(130, in, out, dtype);
    const auto all = p.run();
    p.every_schedule = false;
    for (int rows = 1; rows <= 128; ++rows) {
      // long sums: a few are enough
      if (in > 100 && rows != 1 && rows != 9 && rows != 65) continue;
      const int first = (rows * 37) % (131 - rows);
      CAPTURE(in, rows, first, name_of(dtype));
      const bool same = bits_of(p.run(first, rows)) ==
                        bits_of(part(all, Problem::count(first, out), Problem::count(rows, out)));
      REQUIRE(same);
    }
  }
}

TEST_CASE("linear gives an output the same bits whatever the other outputs") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8}) {
    const Problem p(2, 1600, 70, dtype);
    const auto all = p.run();
    const int first = 69;
    const auto last = p.run(0, 2, true, first);
    CHECK(bits_of(last) ==
          bits_of(std::vector<float>{all[std::size_t(first)], all[std::size_t(p.out + first)]}));
  }
}

TEST_CASE("linear_add adds the scaled result with one rounding") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8}) {
    const Problem p(3, 1600, 10, dtype);
    const auto y = p.run(), before = test::random_floats(30, 9);
    std::vector<float> want;
    for (std::size_t i = 0; i < 30; ++i) want.push_back(std::fma(0.3f, y[i], before[i]));
    CHECK(bits_of(p.run(0, 3, true, 0, &before)) == bits_of(want));
  }
}

TEST_CASE("linear lets NaN and infinity through to their own row alone") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8}) {
    Problem p(6, 70, 9, dtype);
    const auto before = p.run();
    p.x[3 * 70 + 69] = std::nanf("");
    p.x[5 * 70] = std::numeric_limits<float>::infinity();
    const auto after = p.run();
    for (std::size_t i = 0; i < 6 * 9; ++i) {
      if (i / 9 == 3)
        CHECK(std::isnan(after[i]));
      else if (i / 9 == 5)
        CHECK_FALSE(std::isfinite(after[i]));
      else
        CHECK(bits_of(std::vector{after[i]}) == bits_of(std::vector{before[i]}));
    }
  }
}

TEST_CASE("linear starts for every number of rows on every device") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8})
    for (const int rows : {8, 9, 16, 17, 32, 33, 64, 65, 128, 129}) {
      Problem p(rows, 1100, 2, dtype, dtype != Dtype::i8);  // several groups
      p.every_schedule = false;
      CAPTURE(rows, name_of(dtype));
      const auto y = p.run();  // requires that the launch is taken
      CHECK(std::all_of(y.begin(), y.end(), [](float v) { return std::isfinite(v); }));
    }
}

// Several parts a block and several blocks a sum, as in wide products of large models: more tiles
// of outputs than fit beside all parts.
TEST_CASE("linear of several parts in each of several groups has the bits of any other cut") {
  for (const auto& [rows, in, out, dtype] :
       {std::tuple{2, 3073, 8449, Dtype::bf16}, {2, 5633, 3009, Dtype::i8}}) {
    Problem p(rows, in, out, dtype);
    p.every_schedule = false;
    const auto all = p.run();
    CAPTURE(in, out, name_of(dtype));
    for (const int first : {out - 3, out - 70}) {
      const auto few = p.run(0, rows, true, first);  // a group per part
      for (int r = 0; r < rows; ++r)
        CHECK(bits_of(part(few, Problem::count(r, out - first), Problem::count(1, out - first))) ==
              bits_of(part(all, Problem::count(r, out) + std::size_t(first),
                           Problem::count(1, out - first))));
    }
    bool close = true;
    for (int r = 0; r < rows; ++r)
      for (int o = 0; o < out; o += 61) {
        const float y = all[Problem::count(r, out) + std::size_t(o)];
        if (dtype == Dtype::i8) {
          close = close && y == i8_reference(p, r, o);
          continue;
        }
        double sum = p.bias[std::size_t(o)], size = std::abs(sum) + 1e-30;
        for (int k = 0; k < in; ++k) {
          const double term =
              double(gpu::to_float(gpu::to_bf16(p.x[Problem::count(r, in) + std::size_t(k)]))) *
              p.weight.values[Problem::count(o, in) + std::size_t(k)];
          sum += term, size += std::abs(term);
        }
        close = close && std::abs(y - sum) <= 2e-6 * size;
      }
    CHECK(close);
  }
}

TEST_CASE("linear takes more rows than a grid is high") {
  for (const Dtype dtype : {Dtype::bf16, Dtype::i8}) {
    Problem p(65537, 1, 1, dtype, true);
    p.every_schedule = false;
    const auto y = p.run();
    bool same = true;
    for (std::size_t r = 0; r < y.size(); ++r) {
      const float want = p.x[r] * p.weight.values[0];
      same = same && std::abs(y[r] - (want * (dtype == Dtype::i8 ? p.scales[0] : 1) + p.bias[0])) <=
                         (dtype == Dtype::i8 ? 1e-3f : 0.0f);
    }
    CAPTURE(name_of(dtype));
    CHECK(same);
  }
}

TEST_CASE("linear refuses a workspace that is too small and does nothing for no rows") {
  Linear p;
  p.rows = 3, p.in = 1100, p.out = 70, p.dtype = Dtype::bf16;
  const std::size_t bytes = cuda::linear_workspace(p);
  CHECK(cuda::linear(p, {nullptr, bytes - 1}, nullptr) == cuda::kTooSmall);
  p.rows = 0;
  CHECK(cuda::linear_workspace(p) == 0);
  CHECK(cuda::linear(p, {}, nullptr) == 0);
}

}  // namespace
}  // namespace dex
