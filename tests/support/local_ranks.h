// Ranks of a training run as threads of the test, with a transport between them.
#pragma once
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/transport.h"
#include "train/ranks/rank_messages.h"

namespace dex::test {

// Runs `work` on every rank and returns by rank what it threw, as "code: message", or "". A rank
// that throws ends no other.
inline std::vector<std::string> on_ranks(const DepthSet& depths, int world, int pipeline,
                                         const std::function<void(RankMessages&)>& work) {
  const auto transports = local_transports(world);
  std::vector<std::string> errors(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      RankMessages ranks(rank_layout(depths, world, rank, pipeline),
                         world > 1 ? transports[rank].get() : nullptr);
      try {
        work(ranks);
      } catch (const Error& error) {
        errors[rank] = fmt::format("{}: {}", int(error.code()), error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace dex::test
