#include "kernels/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace dex {
namespace {

// A thread that has nothing to do looks this often before it sleeps: the next operator usually
// comes within microseconds, a wake-up costs tens of them.
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

// A thread's share of the parts: its end in the upper half, the next one in the lower, so that one
// fetch_add both takes a part and tells whether it was one. A thread that comes late finds none
// left, and nobody waits for it.
struct alignas(64) Share {
  std::atomic<std::uint64_t> next_and_end{0};
};

struct ThreadPool::State {
  explicit State(int count) : shares(std::size_t(count)) {}

  std::vector<Share> shares;  // one per thread, the caller's first
  std::atomic<const std::function<void(int)>*> part{nullptr};
  std::atomic<int> unfinished{0};
  std::atomic<std::uint32_t> calls{0};
  std::atomic<bool> stop{false}, failed{false};
  std::exception_ptr error;  // of whoever set `failed`
  std::vector<std::thread> threads;

  // Once a part has failed the others only count down: the call is lost.
  void run_part(int index) {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      (*part.load(std::memory_order_relaxed))(index);
    } catch (...) {
      if (!failed.exchange(true, std::memory_order_relaxed)) error = std::current_exception();
    }
  }

  void drain(Share& share) {
    for (;;) {
      const std::uint64_t taken = share.next_and_end.fetch_add(1, std::memory_order_acq_rel);
      const auto index = std::uint32_t(taken), end = std::uint32_t(taken >> 32);
      if (index >= end) return;
      run_part(int(index));
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
    }
  }
  void drain_from(std::size_t own) {
    for (std::size_t i = 0; i < shares.size(); ++i) drain(shares[(own + i) % shares.size()]);
  }
  void serve(std::size_t own) {
    for (;;) {
      const std::uint32_t seen = calls.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      drain_from(own);
      wait_while(calls, seen);
    }
  }
  void call() {
    calls.fetch_add(1, std::memory_order_release);
    calls.notify_all();
  }
  void end() {
    stop.store(true, std::memory_order_release);
    call();
    for (auto& thread : threads) thread.join();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>(std::max(1, threads))) {
  state_->threads.reserve(state_->shares.size());
  try {
    for (int i = 1; i < threads; ++i)
      state_->threads.emplace_back([s = state_.get(), i] { s->serve(std::size_t(i)); });
  } catch (const std::system_error& error) {
    state_->end();
    throw std::system_error(error.code(), "a pool of " + std::to_string(threads) +
                                              " threads, of which " +
                                              std::to_string(this->threads()) + " could be had");
  }
}

ThreadPool::~ThreadPool() { state_->end(); }

int ThreadPool::threads() const { return int(state_->threads.size()) + 1; }

int ThreadPool::share_begin(int parts, int thread) const {
  return int(std::int64_t{parts} * thread / threads());
}

void ThreadPool::run(int parts, const std::function<void(int)>& part) {
  State& s = *state_;
  if (s.threads.empty() || parts <= 1) {
    for (int i = 0; i < parts; ++i) part(i);
    return;
  }
  s.part.store(&part, std::memory_order_relaxed);
  s.failed.store(false, std::memory_order_relaxed);
  s.unfinished.store(parts, std::memory_order_relaxed);
  for (int t = 0; t < threads(); ++t) {
    const auto begin = std::uint64_t(share_begin(parts, t)),
               end = std::uint64_t(share_begin(parts, t + 1));
    s.shares[t].next_and_end.store(end << 32 | begin, std::memory_order_release);
  }
  s.call();
  s.drain_from(0);
  for (int left = s.unfinished.load(std::memory_order_acquire); left > 0;
       left = s.unfinished.load(std::memory_order_acquire))
    wait_while(s.unfinished, left);
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace dex
