// Threads that run tasks. Results come as futures, so whoever keeps these in order keeps the
// results in order.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "common/base/start_thread.h"

namespace dex {

class TaskQueue {
 public:
  explicit TaskQueue(int threads) {
    threads_.reserve(std::size_t(threads));
    try {
      for (int i = 0; i < threads; ++i)
        threads_.push_back(
            start_thread("tasks, " + std::to_string(i + 1) + " of " + std::to_string(threads),
                         [this] { work(); }));
    } catch (...) {
      end();
      throw;
    }
  }
  ~TaskQueue() { end(); }  // tasks not begun are dropped
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  template <typename Task>
  auto submit(Task task) {
    auto packaged = std::make_shared<std::packaged_task<decltype(task())()>>(std::move(task));
    auto result = packaged->get_future();
    {
      const std::lock_guard guard(mutex_);
      tasks_.emplace_back([packaged] { (*packaged)(); });
    }
    wake_.notify_one();
    return result;
  }

 private:
  void end() {
    {
      const std::lock_guard guard(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  void work() {
    for (;;) {
      std::unique_lock guard(mutex_);
      wake_.wait(guard, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      guard.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dex
