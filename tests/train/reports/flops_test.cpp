#include "train/reports/flops.h"

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <thread>

#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "train/ranks/rank_messages.h"
#include "train/reports/live_line.h"
#include "train/reports/machine_speeds.h"

using namespace dex;

namespace {

constexpr int kHidden = 32, kLayers = 4, kVocab = 97;

ModelConfig tiny_config(const test::TempDir& dir) {
  return read_model_config(test::TinyModel{}.write(dir / "m"));
}

}  // namespace

TEST_CASE("a step's operations are those of its matrix products, counted one by one") {
  const test::TempDir dir;
  // Targets 1 and 3 of five tokens: rows 0 and 2, and nothing behind token 2 goes through the
  // model.
  const Sample sample{.tokens = {1, 2, 3, 4, 5}, .supervised = {0, 1, 0, 1, 0}};
  double wanted = 0;
  const auto product = [&](double rows, double in, double out) { wanted += 2 * rows * in * out; };
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const double out : {32, 16, 16}) product(3, kHidden, out);  // q, k, v
    for (int row = 0; row < 3; ++row)
      for (int head = 0; head < 4; ++head) product(1, 8, row + 1), product(1, row + 1, 8);
    product(3, 32, kHidden);
    for (int i = 0; i < 2; ++i) product(3, kHidden, 48);
    product(3, 48, kHidden);
  }
  product(2, kHidden, kVocab);  // teacher
  for (int exit = 0; exit < 2; ++exit) {
    product(2, kHidden, kVocab), product(2, kVocab, kHidden);  // logits, their gradient
    for (int pass = 0; pass < 3; ++pass)
      product(2, kHidden, 64), product(2, 64, kHidden);  // forward, inputs, weights
  }
  CHECK(step_flops(tiny_config(dir), {2, kHidden, 64}, kVocab, {&sample, 1}) == Approx(wanted));
  const Sample untaught{.tokens = {1, 2, 3}, .supervised = {1, 0, 0}};
  CHECK(step_flops(tiny_config(dir), {2, kHidden, 64}, kVocab, {&untaught, 1}) == 0);
}

TEST_CASE("the live line shows each depth, and speeds as means over the steps it saw") {
  LiveLine line({10, 20}, 1000);
  line.note({.loss = {2, 1}, .agreement = {0.25, 0.5}, .tokens = 30, .flops = 900, .seconds = 1});
  CHECK(line.note({.loss = {1.5, 0.25},
                   .agreement = {0.375, 0.5},
                   .tokens = 30,
                   .flops = 300,
                   .seconds = 2}) ==
        "loss @10 1.500 @20 0.250  agree 37.5% 50.0%  20 tok/s  MFU 40.0%");
  CHECK(line.mfu({.flops = 300, .seconds = 2}) == Approx(0.15));
  LiveLine unmeasured({10}, 0);
  CHECK(unmeasured.note({.loss = {1},
                         .agreement = {0},
                         .tokens = 8,
                         .flops = 1,
                         .seconds = 2,
                         .skipped = true}) == "loss @10 1.000  agree 0.0%  4 tok/s  1 skipped");
}

TEST_CASE("speeds follow from the time of a round and the rounds of a token") {
  const RoundTimes times{
      .stages = {0.2, 0.1, 0.3}, .rows = {2, 1, 1}, .plain = 0.5, .threads = 1, .context = 9};
  const SpeedForecast f = speed_forecast(times, 2);
  CHECK(f.plain == Approx(2));
  CHECK(f.shared == Approx(1 / 1.2));
  CHECK(f.apart == Approx(1 / 0.6));
  CHECK(speed_forecast({}, 2).plain == 0);
  CHECK(forecast_table({}, {}).empty());
}

TEST_CASE("a machine is measured for every explorer, and only as far as it is asked") {
  const test::TempDir dir;
  const auto path = test::TinyModel{}.write(dir / "m");
  const DepthSet depths({1, 2, 3}, 4);
  RankMessages alone(rank_layout(depths, 1, 0));
  const MachineSpeeds speeds = measure_machine(alone, path, depths, Dtype::f32, at::kCPU, 64, true);
  CHECK(speeds.gemm_peak > 1e8);  // any machine of this century
  CHECK(speeds.rounds.rows == std::vector<int>{4, 2, 1, 1});
  for (double seconds : speeds.rounds.stages) CHECK((seconds > 0 && seconds < 10));
  CHECK(speeds.rounds.sum() >= speeds.rounds.slowest());
  CHECK(speeds.text("f32").find("GFLOP/s") != std::string::npos);
}

TEST_CASE("ranks time the stages they have, and the leading one has the times of all") {
  const test::TempDir dir;
  const auto path = test::TinyModel{}.write(dir / "m");
  const DepthSet depths({1, 2, 3}, 4);
  const auto transports = local_transports(6);
  std::vector<MachineSpeeds> speeds(6);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 6; ++rank)
    threads.emplace_back([&, rank] {
      RankMessages ranks(rank_layout(depths, 6, rank, 3), transports[rank].get());
      at::set_num_threads(1);
      speeds[rank] = measure_machine(ranks, path, depths, Dtype::f32, at::kCPU, 64, true);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(speeds[0].rounds.rows == std::vector<int>{4, 2, 1, 1});
  CHECK(speeds[0].gemm_peak > 1e8);
  for (double seconds : speeds[0].rounds.stages) CHECK((seconds > 0 && seconds < 10));
  CHECK(speeds[0].rounds.stages.size() == 4);
  CHECK(speeds[0].rounds.plain > 0);
  for (std::size_t rank = 1; rank < 6; ++rank) CHECK_FALSE(speeds[rank].rounds.known());
}
