#include "decode/explorer/measure_costs.h"

#include <algorithm>
#include <numeric>

#include "common/base/stopwatch.h"

namespace dex {
namespace {

constexpr int kContext = 128;  // positions that every row sees
constexpr int kPasses = 3;     // of which the quickest counts
constexpr double kMostSeconds = 1;

double seconds_of_pass(StageEngine& engine, bool last, at::Tensor x, const RowLayout& layout) {
  const Stopwatch watch;
  engine.forward(x, layout);
  engine.read(x, {.width = last ? 1 : 8, .positions = layout.positions});
  return watch.seconds();
}

}  // namespace

std::shared_ptr<const RowCosts> measure_costs(
    const ModelInfo& model, const std::vector<std::unique_ptr<StageEngine>>& engines, int rows) {
  const Stopwatch watch;
  std::vector<std::int32_t> context(
      std::size_t(std::min<int>(kContext, model.config.max_positions - 1)));
  std::iota(context.begin(), context.end(), 0);
  const int most = rows + 1;
  for (const auto& engine : engines) {
    engine->begin(int(context.size()) + most, {});
    at::Tensor x = at::zeros({std::int64_t(context.size()), model.config.hidden_size});
    engine->forward(x, RowLayout::contiguous(0, int(context.size()), context));
  }
  std::vector<RowCosts::Point> points;
  for (int count = 1; points.size() < 2 || (count <= most && watch.seconds() < kMostSeconds);
       count = count < 4 ? count + 1 : count + count / 2) {
    const auto layout = RowLayout::side_by_side(std::min(count, most), context);
    double seconds = 0;
    for (std::size_t k = 0; k < engines.size(); ++k) {
      double least = 0;
      for (int pass = 0; pass < kPasses; ++pass) {
        const double s =
            seconds_of_pass(*engines[k], k + 1 == engines.size(),
                            at::ones({layout.rows(), model.config.hidden_size}), layout);
        least = pass == 0 ? s : std::min(least, s);
      }
      seconds += least;
    }
    points.push_back({count, seconds});
  }
  return std::make_shared<const RowCosts>(std::move(points));
}

}  // namespace dex
