// A training run with its ranks as threads of the test: each loads its own share of the model.
#pragma once
#include <ATen/Parallel.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/stopwatch.h"
#include "common/comm/gpu_link.h"
#include "common/comm/transport.h"
#include "tests/support/in_order_backend.h"
#include "train/loop/train_loop.h"

namespace dex::test {

struct RankResult {
  std::optional<TrainOutcome> outcome;
  std::optional<Error> error;
};

struct ThreadRanks {
  std::filesystem::path model;
  std::vector<Sample> samples, held_out;
  TrainOptions options;  // depths, dtype, out, ...
  int world = 1, stages = 0;
  // A link of their own for large tensors, as between GPUs: two groups that go one way each, or one
  // that goes both.
  enum class Tensors { by_transport, one_way_groups, one_group } tensors = Tensors::by_transport;
  std::function<void(int rank, TrainOptions&)> change = [](int, TrainOptions&) {};
  // weights, before it trains
  std::function<void(int rank, const Model&)> alter = [](int, const Model&) {};
  std::function<bool(int rank)> stop = [](int) { return false; };
  // of a sample
  std::function<void(int rank, std::uint64_t index)> on_read = [](int, std::uint64_t) {};

  std::vector<RankResult> run() const {
    auto transports = local_transports(world);
    const auto up = std::make_shared<test::InOrderGroup>();
    const auto down = tensors == Tensors::one_group ? up : std::make_shared<test::InOrderGroup>();
    std::vector<RankResult> results(world);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world; ++rank)
      threads.emplace_back([&, rank] {
        auto& result = results[rank];
        auto& transport = *transports[rank];
        try {
          at::set_num_threads(1);
          const auto group = [&](const auto& of) {
            return c10::make_intrusive<InOrderBackend>(of, rank, world);
          };
          GpuLink gpu_link(group(up), group(down), at::kCPU, wait_for_peer);
          result.outcome = run_one(rank, transport, gpu_link);
        } catch (const Error& error) {
          result.error = error;
          transport.abort(error.what(), error.code());
        }
      });
    for (std::thread& thread : threads) thread.join();
    return results;
  }

 private:
  static void wait_for_peer(int peer, const std::function<bool()>& done) {
    for (const Stopwatch watch; !done(); std::this_thread::sleep_for(std::chrono::microseconds(50)))
      require(watch.seconds() < 30, ExitCode::temporary, "rank {} sent nothing", peer);
  }

  TrainOutcome run_one(int rank, Transport& transport, GpuLink& gpu_link) const {
    TrainOptions mine = options;
    change(rank, mine);
    const DepthSet depths = DepthSet::parse(mine.depths, read_model_config(model).num_layers);
    const RankLayout layout = rank_layout(depths, world, rank, stages);
    RankMessages ranks(layout, world > 1 ? &transport : nullptr);
    if (world > 1 && tensors != Tensors::by_transport) {
      gpu_link.connect(gpu_peers(layout));
      ranks.use_gpu_link(gpu_link);
    }
    const Model part = Model::load(model, depths, Dtype::f32, WeightLayout::rows, layout.stages(),
                                   DigestsOf::what_is_read);
    alter(rank, part);
    const TrainingData data{.size = samples.size(),
                            .sample =
                                [this, rank](std::uint64_t i) {
                                  on_read(rank, i);
                                  return samples.at(i);
                                },
                            .held_out = held_out,
                            .digest = "samples"};
    return TrainLoop(mine, part, data, [this, rank] { return stop(rank); }, std::move(ranks)).run();
  }
};

}  // namespace dex::test
