#include "common/model/round_times.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "common/base/spread.h"
#include "common/base/stopwatch.h"
#include "common/model/adapter.h"
#include "common/model/exit.h"
#include "common/model/head_use.h"
#include "kernels/peaks.h"

namespace dex {
namespace {

constexpr int kContext = 256, kRepeats = 5;

// New nodes of one depth in one round of the full lattice, at most.
int most_rows(int stage, int num_stages) { return 1 << std::clamp(num_stages - 2 - stage, 0, 6); }

class Timer {
 public:
  explicit Timer(ThreadPool& pool) : pool_(pool) {}

  // Between two passes other memory is read, as in a decoder: no weight is still in a cache.
  double median(const std::function<void()>& work) {
    std::vector<double> seconds;
    for (int i = 0; i <= kRepeats; ++i) {
      reader_.pass(pool_);
      const Stopwatch watch;
      work();
      if (i > 0) seconds.push_back(watch.seconds());  // the first touches memory and wakes threads
    }
    return spread_of(seconds).median;
  }

 private:
  ThreadPool& pool_;
  ReadPeak reader_;
};

}  // namespace

double RoundTimes::slowest() const {
  return stages.empty() ? 0 : *std::max_element(stages.begin(), stages.end());
}
double RoundTimes::sum() const { return std::accumulate(stages.begin(), stages.end(), 0.0); }

RoundTimes measure_round_times(const std::filesystem::path& model, const DepthSet& depths,
                               StageShare share, Dtype dtype, std::int64_t width, int threads) {
  const c10::InferenceMode inference;
  const ModelConfig config = read_model_config(model);
  const WeightFile weights = WeightFile::open(model);
  const Embedding embedding(config, weights, dtype, WeightLayout::panels);
  const Head head(config, weights, &embedding, int(config.vocab_size), dtype, WeightLayout::panels);
  const Adapter adapter(AdapterWeights::paper_start(config, width, 0, 1), config.rms_norm_eps,
                        dtype);
  const int num_stages = depths.num_stages();
  const bool shared = shares_head(HeadUse::automatic, config, head.vocab(), num_stages);
  ThreadPool pool(threads);
  Timer timer(pool);
  RoundTimes times{.threads = threads,
                   .context = std::max(1, std::min(kContext, int(config.max_positions) - 1))};

  std::vector<std::int32_t> table(times.context);
  std::iota(table.begin(), table.end(), 0);
  for (int k = share.begin; k < share.end; ++k) {
    const Stage stage(config, depths.layers(k), weights, dtype, WeightLayout::panels);
    KvCache cache = stage.make_cache(times.context + 64);
    at::Tensor before = at::ones({times.context, config.hidden_size});
    stage.forward(before, RowLayout::contiguous(0, times.context, table), cache, pool);
    const auto layers = [&](int rows) {
      const RowLayout layout = RowLayout::side_by_side(rows, table);
      at::Tensor x = at::ones({rows, config.hidden_size});
      stage.forward(x, layout, cache, pool);
      return x;
    };
    const bool last = k + 1 == num_stages;
    const Exit exit(head, last ? nullptr : &adapter);
    const auto question = [&](int at, int rows) {
      return ExitQuestion{.width = at + 1 == num_stages ? 1 : at + 1,
                          .positions = std::vector<std::int32_t>(std::size_t(rows), times.context)};
    };
    const auto pass = [&](int rows) { exit.read(layers(rows), question(k, rows), pool); };
    // A head that all share is read for the rows of every exit; what they hold does not matter.
    std::vector<ExitQuestion> of_all;
    for (int at = 0; at < num_stages; ++at)
      of_all.push_back(question(at, most_rows(at, num_stages)));
    const auto pass_with_share = [&](int rows) {
      exit.exit_rows(layers(rows), /*bare=*/false, pool);
      exit.look(at::ones({rows_of(of_all), config.hidden_size}), of_all,
                HeadShare::of(k, num_stages, head.vocab()), pool);
    };
    const int rows = most_rows(k, num_stages);
    times.rows.push_back(rows);
    times.stages.push_back(timer.median([&] { shared ? pass_with_share(rows) : pass(rows); }));
    times.plain += last ? timer.median([&] { pass(1); }) : timer.median([&] { layers(1); });
  }
  return times;
}

SpeedForecast speed_forecast(const RoundTimes& times, double rounds_per_token) {
  if (!times.known() || rounds_per_token <= 0) return {};
  return {.plain = 1 / times.plain,
          .shared = 1 / (rounds_per_token * times.sum()),
          .apart = 1 / (rounds_per_token * times.slowest())};
}

}  // namespace dex
