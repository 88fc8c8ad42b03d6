// The threads one explorer computes with. Work is cut into parts by index; which thread takes a part never shows in the
// result. Waiting threads spin briefly, then block.
#pragma once
#include <functional>
#include <memory>

namespace dex {

class Workers {
 public:
  explicit Workers(int threads);  // 1 runs everything on the caller; std::system_error where the system gives no more
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const;
  // Calls part(i) once for every i in [0, parts), then returns. Parts must not throw. One caller at a time. Each thread begins
  // with its own share of neighbouring parts in rising order, then helps the others with theirs.
  void run(int parts, const std::function<void(int)>& part);
  int share_begin(int parts, int thread) const;  // share t is [share_begin(parts, t), share_begin(parts, t + 1))

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dex
