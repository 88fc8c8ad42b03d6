// What it costs that a row has the same bits in any company: our linear() beside libtorch's, whose
// sums change with the number of rows. The two are timed in turn, weights out of every cache. A
// ratio below 1 means that ours is faster.
//   dex_invariance_bench [PAIRS]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/program.h"
#include "common/base/spread.h"
#include "common/base/stopwatch.h"
#include "common/model/matrix.h"
#include "common/model/tensors.h"
#include "kernels/peaks.h"

namespace dex {
namespace {

struct Shape {
  int out, in;
};

// Weights that take turns, so that none is still in a cache when it is used again.
std::vector<Matrix> copies_of(Shape shape, Dtype dtype, WeightLayout layout) {
  const std::int64_t bytes = std::int64_t{shape.out} * shape.in * size_of(dtype);
  std::vector<Matrix> copies;
  for (std::int64_t i = 0;
       i < std::max<std::int64_t>(2, (std::int64_t{ReadPeak::kMegabytes} << 20) / bytes); ++i)
    copies.emplace_back(at::empty({shape.out, shape.in}, scalar_type(dtype)).uniform_(-0.1, 0.1),
                        dtype, layout);
  return copies;
}

using Call = std::function<at::Tensor(const Matrix& weight)>;

// Seconds per call over one turn of all copies, or several where a turn is short.
double time_of(const Call& call, const std::vector<Matrix>& weights) {
  const Stopwatch watch;
  int calls = 0;
  for (; calls == 0 || watch.seconds() < 0.05; calls += int(weights.size()))
    for (const Matrix& weight : weights) call(weight);
  return watch.seconds() / calls;
}

void check_equal(const at::Tensor& ours, const at::Tensor& theirs, Dtype dtype) {
  const double tolerance = dtype == Dtype::f32 ? 1e-4 : 2e-2;
  const double difference = (ours - theirs).abs().max().item<double>(),
               scale = ours.abs().max().item<double>();
  require(difference <= tolerance * scale, ExitCode::bug,
          "the linears differ by {}, wanted at most {}", difference, tolerance * scale);
}

void compare(Shape shape, int rows, Dtype dtype, ThreadPool& pool, int pairs) {
  const auto panels = copies_of(shape, dtype, WeightLayout::panels),
             plain = copies_of(shape, dtype, WeightLayout::rows);
  const at::Tensor x = at::empty({rows, shape.in}).uniform_(-1, 1),
                   narrow = x.to(scalar_type(dtype));
  const Call ours = [&](const Matrix& weight) {
    at::Tensor y = at::empty({rows, shape.out});
    weight.multiply(x, y, pool);
    return y;
  };
  const Call theirs = [&](const Matrix& weight) { return at::linear(narrow, weight.plain()); };
  const at::Tensor sample =
      at::empty({shape.out, shape.in}, scalar_type(dtype)).uniform_(-0.1, 0.1);
  check_equal(ours(Matrix(sample, dtype)),
              theirs(Matrix(sample, dtype, WeightLayout::rows)).to(at::kFloat), dtype);

  std::vector<double> our_times, their_times, ratios;
  for (int pair = 0; pair < pairs; ++pair) {
    our_times.push_back(time_of(ours, panels));
    their_times.push_back(time_of(theirs, plain));
    ratios.push_back(our_times.back() / their_times.back());
  }
  const double bytes = double(std::int64_t{shape.out} * shape.in * size_of(dtype));
  const Spread us = spread_of(our_times), them = spread_of(their_times), ratio = spread_of(ratios);
  fmt::print("{:<14} {:<5} {:>4} {:>7} {:>11.1f} {:>11.1f} {:>7.1f} {:>7.1f} {:>7.2f} {:>15}\n",
             fmt::format("{}x{}", shape.out, shape.in), name_of(dtype), rows, pool.threads(),
             1e6 * us.median, 1e6 * them.median, bytes / us.median * 1e-9,
             bytes / them.median * 1e-9, ratio.median,
             fmt::format("{:.2f} .. {:.2f}", ratio.least, ratio.most));
}

int run(int count, char** arguments) {
  require(count <= 2, ExitCode::usage, "wanted dex_invariance_bench [PAIRS]");
  const int pairs = count > 1 ? number_argument("PAIRS", arguments[1], 1) : 7;
  const c10::InferenceMode inference;
  fmt::print("{:<14} {:<5} {:>4} {:>7} {:>11} {:>11} {:>7} {:>7} {:>7} {:>15}   ({} pairs)\n",
             "OUT x IN", "type", "rows", "threads", "ours us", "torch us", "GB/s", "GB/s", "ratio",
             "least .. most", pairs);
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    ThreadPool pool(threads);
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const Shape shape :
           {Shape{576, 1536}, Shape{1536, 576}, Shape{49152, 576}, Shape{4096, 14336}})
        for (const int rows : {1, 8}) compare(shape, rows, dtype, pool, pairs);
  }
  return 0;
}

}  // namespace
}  // namespace dex

int main(int count, char** arguments) {
  return dex::run_program("dex_invariance_bench", [&] { return dex::run(count, arguments); });
}
