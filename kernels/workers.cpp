#include "kernels/workers.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace dex {

struct Workers::State {
  std::mutex mutex;
  std::condition_variable wake, done;
  const std::function<void(int)>* part = nullptr;
  std::atomic<int> next{0};
  int parts = 0, busy = 0;
  long generation = 0;
  bool stop = false;
  std::vector<std::thread> threads;

  void drain() {
    for (int i = next.fetch_add(1); i < parts; i = next.fetch_add(1)) (*part)(i);
  }
  void serve() {
    long seen = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stop || generation != seen; });
      if (stop) return;
      seen = generation;
      lock.unlock();
      drain();
      lock.lock();
      if (--busy == 0) done.notify_one();
    }
  }
};

Workers::Workers(int threads) : state_(std::make_unique<State>()) {
  for (int i = 1; i < threads; ++i) state_->threads.emplace_back([s = state_.get()] { s->serve(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  for (auto& thread : state_->threads) thread.join();
}

int Workers::threads() const { return static_cast<int>(state_->threads.size()) + 1; }

void Workers::run(int parts, const std::function<void(int)>& part) {
  State& s = *state_;
  if (s.threads.empty() || parts <= 1) {
    for (int i = 0; i < parts; ++i) part(i);
    return;
  }
  {
    const std::lock_guard lock(s.mutex);
    s.part = &part;
    s.parts = parts;
    s.next = 0;
    s.busy = static_cast<int>(s.threads.size());
    ++s.generation;
  }
  s.wake.notify_all();
  s.drain();
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.busy == 0; });
}

}  // namespace dex
