// The ranks of a training run as threads of the test, all in one call.
#pragma once
#include <ATen/Parallel.h>

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <vector>

#include "common/base/error.h"
#include "common/comm/transport.h"
#include "train/ranks/rank_messages.h"

namespace dex::test {

// What `call` throws on each rank of the layout's world, whatever rank the layout names. It is no
// place for assertions, which know one thread only. An error of one rank does not wake the others:
// those that still wait after a while end with Error(bug).
inline std::vector<std::optional<Error>> on_every_rank(
    RankLayout layout, const std::function<void(RankMessages&)>& call) {
  const auto wires = local_transports(layout.world);
  std::vector<std::future<void>> calls;
  for (layout.rank = 0; layout.rank < layout.world; ++layout.rank)
    calls.push_back(std::async(std::launch::async, [layout, &wires, &call] {
      at::set_num_threads(1);
      RankMessages ranks(layout, layout.world > 1 ? wires[layout.rank].get() : nullptr);
      call(ranks);
    }));
  for (const auto& pending : calls)
    if (pending.wait_for(std::chrono::seconds(20)) != std::future_status::ready)
      wires[0]->abort("a rank waited for too long", ExitCode::bug);
  std::vector<std::optional<Error>> errors(calls.size());
  for (std::size_t rank = 0; rank < calls.size(); ++rank) try {
      calls[rank].get();
    } catch (const Error& error) {
      errors[rank] = error;
    }
  return errors;
}

}  // namespace dex::test
