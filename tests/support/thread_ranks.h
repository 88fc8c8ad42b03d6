// A training run with its ranks as threads of the test: each loads its own share of the model.
#pragma once
#include <ATen/Parallel.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "common/transport.h"
#include "train/train_loop.h"

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
  std::function<void(int rank, TrainOptions&)> change = [](int, TrainOptions&) {};
  std::function<void(int rank, const Model&)> alter = [](int, const Model&) {};  // weights, before it trains
  std::function<bool(int rank)> stop = [](int) { return false; };
  std::function<void(int rank, std::uint64_t index)> on_read = [](int, std::uint64_t) {};  // of a sample

  std::vector<RankResult> run() const {
    auto wires = local_transports(world);
    std::vector<RankResult> results(static_cast<std::size_t>(world));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world; ++rank)
      threads.emplace_back([&, rank] {
        auto& result = results[static_cast<std::size_t>(rank)];
        auto& wire = *wires[static_cast<std::size_t>(rank)];
        try {
          at::set_num_threads(1);
          result.outcome = run_one(rank, wire);
        } catch (const Error& error) {
          result.error = error;
          wire.abort(error.what(), error.code());
        }
      });
    for (std::thread& thread : threads) thread.join();
    return results;
  }

 private:
  TrainOutcome run_one(int rank, Transport& wire) const {
    TrainOptions mine = options;
    change(rank, mine);
    const DepthSet depths = DepthSet::parse(mine.depths, read_model_config(model).num_layers);
    Ranks ranks(rank_layout(depths, world, rank, stages), world > 1 ? &wire : nullptr);
    const Model part = Model::load(model, depths, Dtype::f32, WeightLayout::rows, ranks.layout().stages());
    alter(rank, part);
    const TrainingData data{.size = samples.size(),
                            .sample =
                                [this, rank](std::uint64_t i) {
                                  on_read(rank, i);
                                  return samples.at(i);
                                },
                            .held_out = held_out,
                            .digest = "samples"};
    return TrainLoop(
               mine, part, data, [this, rank] { return stop(rank); }, ranks)
        .run();
  }
};

}  // namespace dex::test
