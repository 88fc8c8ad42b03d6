#include "common/explore/event_queue.h"

#include <utility>

namespace dex {

void EventQueue::add(Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  come_.notify_all();
}

std::vector<Event> EventQueue::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

std::vector<Event> EventQueue::wait() {
  std::unique_lock lock(mutex_);
  come_.wait(lock, [&] { return !events_.empty(); });
  return std::exchange(events_, {});
}

}  // namespace dex
