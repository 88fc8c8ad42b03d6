#include "decode/explorer/measure_costs.h"

#include <algorithm>
#include <numeric>

#include "common/base/stopwatch.h"

namespace dex {
namespace {

constexpr int kContext = 128;  // positions that every row sees
constexpr int kPasses = 3;     // of which the quickest counts
constexpr double kMostSeconds = 1;

// One of the stages, and what its explorer does with the rows of as many exits.
struct Timed {
  StageEngine& engine;
  int number, stages;
  bool shared_head;
  int vocab;
};

ExitQuestion question(const Timed& stage, int exit, const RowLayout& layout) {
  return {.width = exit + 1 == stage.stages ? 1 : 8, .positions = layout.positions};
}

// Every exit has as many rows.
void read_share(const Timed& stage, const at::Tensor& x, const RowLayout& layout) {
  std::vector<ExitQuestion> questions;
  for (int exit = 0; exit < stage.stages; ++exit)
    questions.push_back(question(stage, exit, layout));
  const at::Tensor rows = stage.engine.exit_rows(x, /*bare=*/false);
  stage.engine.look(rows.repeat({stage.stages, 1}), questions,
                    HeadShare::of(stage.number, stage.stages, stage.vocab));
}

double seconds_of_pass(const Timed& stage, at::Tensor x, const RowLayout& layout) {
  const Stopwatch watch;
  stage.engine.forward(x, layout);
  if (stage.shared_head)
    read_share(stage, x, layout);
  else
    stage.engine.read(x, question(stage, stage.number, layout));
  return watch.seconds();
}

}  // namespace

std::shared_ptr<const RowCosts> measure_costs(
    const ModelInfo& model, const std::vector<std::unique_ptr<StageEngine>>& engines, int rows,
    bool shared_head) {
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
        const Timed stage{*engines[k], int(k), int(engines.size()), shared_head, model.vocab};
        const double s =
            seconds_of_pass(stage, at::ones({layout.rows(), model.config.hidden_size}), layout);
        least = pass == 0 ? s : std::min(least, s);
      }
      seconds += least;
    }
    // a row more takes no less: what says so was disturbed
    points.push_back({count, points.empty() ? seconds : std::max(seconds, points.back().seconds)});
  }
  return std::make_shared<const RowCosts>(std::move(points));
}

}  // namespace dex
