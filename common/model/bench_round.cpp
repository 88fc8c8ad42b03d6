// What more rows cost a round: one stage's forward pass with M rows beside the same with one, in
// turn.
//   dex_round_bench MODEL [DTYPE] [PAIRS]    the middle third of the layers, 256 tokens of context
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <numeric>

#include "common/base/dtype.h"
#include "common/base/error.h"
#include "common/base/program.h"
#include "common/base/spread.h"
#include "common/base/stopwatch.h"
#include "common/model/model.h"

namespace dex {
namespace {

constexpr int kContext = 256;
constexpr int kRows[] = {1, 2, 4, 8, 16, 32};

double seconds_of(const Stage& stage, int rows, KvCache& cache,
                  std::span<const std::int32_t> context, ThreadPool& pool) {
  const RowLayout layout = RowLayout::side_by_side(rows, context);
  at::Tensor x = at::ones({rows, stage.config().hidden_size});
  const Stopwatch watch;
  stage.forward(x, layout, cache, pool);
  return watch.seconds();
}

void compare(const Model& model, int threads, int pairs) {
  const Stage& stage = model.stages[1];
  ThreadPool pool(threads);
  KvCache cache = stage.make_cache(kContext + 64);
  std::vector<std::int32_t> context(kContext);
  std::iota(context.begin(), context.end(), 0);
  at::Tensor x = at::randn({kContext, model.config.hidden_size});
  stage.forward(x, RowLayout::contiguous(0, kContext, context), cache, pool);

  // Between two passes the other stages' weights are read, as in a decoder: none is still in a
  // cache.
  const auto cool = [&] {
    KvCache other = model.stages[2].make_cache(1);
    at::Tensor row = at::ones({1, model.config.hidden_size});
    const std::int32_t first[] = {0};
    model.stages[2].forward(row, RowLayout::contiguous(0, 1, first), other, pool);
  };
  for (const int rows : kRows) {
    std::vector<double> ones, many, ratios;
    for (int pair = 0; pair < pairs; ++pair) {
      cool();
      ones.push_back(seconds_of(stage, 1, cache, context, pool));
      cool();
      many.push_back(seconds_of(stage, rows, cache, context, pool));
      ratios.push_back(many.back() / ones.back());
    }
    const Spread ratio = spread_of(ratios);
    fmt::print("{:>7} {:>5} {:>11.2f} {:>11.2f} {:>7.2f} {:>15}\n", threads, rows,
               1e3 * spread_of(ones).median, 1e3 * spread_of(many).median, ratio.median,
               fmt::format("{:.2f} .. {:.2f}", ratio.least, ratio.most));
  }
}

int run(int count, char** arguments) {
  require(count >= 2 && count <= 4, ExitCode::usage,
          "wanted dex_round_bench MODEL [DTYPE] [PAIRS]");
  const std::string dtype = count > 2 ? arguments[2] : "bf16";
  const int pairs = count > 3 ? number_argument("PAIRS", arguments[3], 1) : 15;
  const c10::InferenceMode inference;
  const Model model =
      Model::load(arguments[1], DepthSet::uniform(3, read_model_config(arguments[1]).num_layers),
                  parse_dtype(dtype));
  fmt::print(
      "{} layers, {}, {} tokens of context, medians of {} pairs\n{:>7} {:>5} {:>11} {:>11} {:>7} "
      "{:>15}\n",
      model.stages[1].layers().size(), dtype, kContext, pairs, "threads", "rows", "1 row ms",
      "M rows ms", "ratio", "least .. most");
  for (const int threads : {1, 2}) compare(model, threads, pairs);
  return 0;
}

}  // namespace
}  // namespace dex

int main(int count, char** arguments) {
  return dex::run_program("dex_round_bench", [&] { return dex::run(count, arguments); });
}
