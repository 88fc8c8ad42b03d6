// A call that may hang, given up on after a while.
#pragma once
#include <chrono>
#include <future>
#include <memory>
#include <optional>

#include "common/base/start_thread.h"

namespace dex {

// The call's result, or nothing when it has not come back by `end`: then it goes on in a thread
// nobody waits for, so it must own all it uses. Throws what the call throws, and Error(temporary)
// where there is no thread for it.
template <typename Call>
auto within(std::chrono::steady_clock::time_point end, Call call)
    -> std::optional<decltype(call())> {
  auto task = std::make_shared<std::packaged_task<decltype(call())()>>(std::move(call));
  auto result = task->get_future();
  start_thread("a call with a deadline", [task] { (*task)(); }).detach();
  if (result.wait_until(end) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace dex
