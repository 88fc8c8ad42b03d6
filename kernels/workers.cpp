#include "kernels/workers.h"

#include <atomic>
#include <thread>
#include <vector>

namespace dex {
namespace {

// A thread that has nothing to do looks this often before it sleeps: the next operator usually comes within microseconds,
// a wake-up costs tens of them.
constexpr int kLooks = 400;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <class T>
void wait_while(const std::atomic<T>& value, T old) {
  for (int look = 0; look < kLooks; ++look) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

// `ticket` holds the number of parts in its upper half and the next part in its lower half, so that one fetch_add both takes
// a part and tells whether it was one; a thread that comes late finds none left and nobody waits for it.
struct Workers::State {
  std::atomic<std::uint64_t> ticket{0};
  std::atomic<const std::function<void(int)>*> part{nullptr};
  std::atomic<int> unfinished{0};
  std::atomic<std::uint32_t> calls{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;

  void drain() {
    for (;;) {
      const std::uint64_t taken = ticket.fetch_add(1, std::memory_order_acq_rel);
      const auto index = static_cast<std::uint32_t>(taken), parts = static_cast<std::uint32_t>(taken >> 32);
      if (index >= parts) return;
      (*part.load(std::memory_order_relaxed))(static_cast<int>(index));
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
    }
  }
  void serve() {
    for (;;) {
      const std::uint32_t seen = calls.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      drain();
      wait_while(calls, seen);
    }
  }
  void call() {
    calls.fetch_add(1, std::memory_order_release);
    calls.notify_all();
  }
};

Workers::Workers(int threads) : state_(std::make_unique<State>()) {
  for (int i = 1; i < threads; ++i) state_->threads.emplace_back([s = state_.get()] { s->serve(); });
}

Workers::~Workers() {
  state_->stop.store(true, std::memory_order_release);
  state_->call();
  for (auto& thread : state_->threads) thread.join();
}

int Workers::threads() const { return static_cast<int>(state_->threads.size()) + 1; }

void Workers::run(int parts, const std::function<void(int)>& part) {
  State& s = *state_;
  if (s.threads.empty() || parts <= 1) {
    for (int i = 0; i < parts; ++i) part(i);
    return;
  }
  s.part.store(&part, std::memory_order_relaxed);
  s.unfinished.store(parts, std::memory_order_relaxed);
  s.ticket.store(static_cast<std::uint64_t>(parts) << 32, std::memory_order_release);
  s.call();
  s.drain();
  for (int left = s.unfinished.load(std::memory_order_acquire); left > 0;
       left = s.unfinished.load(std::memory_order_acquire))
    wait_while(s.unfinished, left);
}

}  // namespace dex
