// The threads one explorer computes with. Work is cut into parts by index; which thread takes a
// part never shows in the result. Waiting threads spin briefly, then block.
#pragma once
#include <functional>
#include <memory>

namespace dex {

class ThreadPool {
 public:
  // 1 runs everything on the caller; std::system_error with both numbers where the system gives
  // fewer
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  // Calls part(i) once for each i of [0, parts). What a part throws first comes out once none runs
  // any more, those not begun are left out. One caller at a time. A thread runs its share in rising
  // order, then helps the others.
  void run(int parts, const std::function<void(int)>& part);
  // share t is [share_begin(parts, t), share_begin(parts, t + 1))
  int share_begin(int parts, int thread) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dex
