// A process group of threads that runs messages as NCCL does: whatever two ranks ask of each other
// is run in the order asked for, sends and receives alike, a send ends when it is received, and the
// first message between two waits for both. What deadlocks there deadlocks here; a receive here
// gives up by the caller's clock.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "common/base/error.h"

namespace dex::test {

class InOrderWork final : public c10d::Work {
 public:
  bool isCompleted() override { return done; }
  std::atomic<bool> done = false;
};

// What all ranks of a group share.
class InOrderGroup {
 public:
  c10::intrusive_ptr<c10d::Work> ask(int rank, int peer, at::Tensor tensor, bool sends) {
    const std::pair pair = std::minmax(rank, peer);
    std::unique_lock lock(mutex_);
    Pair& between = pairs_[pair];
    auto& mine = rank < peer ? between.low : between.high;
    auto work = c10::make_intrusive<InOrderWork>();
    mine.queue.push_back({std::move(tensor), sends, work});
    mine.met = true;
    run(between);
    changed_.notify_all();
    const auto& theirs = rank < peer ? between.high : between.low;
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return theirs.met; }))
      fail(ExitCode::temporary, "rank {} waits for rank {} to connect", rank, peer);
    return work;
  }

 private:
  struct Asked {
    at::Tensor tensor;
    bool sends;
    c10::intrusive_ptr<InOrderWork> work;
  };
  struct Side {
    std::deque<Asked> queue;
    bool met = false;
  };
  struct Pair {
    Side low, high;
  };

  static void run(Pair& between) {
    auto &a = between.low.queue, &b = between.high.queue;
    for (; !a.empty() && !b.empty() && a.front().sends != b.front().sends;
         a.pop_front(), b.pop_front()) {
      Asked& from = a.front().sends ? a.front() : b.front();
      Asked& to = a.front().sends ? b.front() : a.front();
      require(from.tensor.sizes() == to.tensor.sizes() && from.tensor.dtype() == to.tensor.dtype(),
              ExitCode::bug, "{} values are sent where {} are received", from.tensor.numel(),
              to.tensor.numel());
      to.tensor.copy_(from.tensor);
      from.work->done = to.work->done = true;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, Pair> pairs_;
};

class InOrderBackend final : public c10d::Backend {
 public:
  InOrderBackend(std::shared_ptr<InOrderGroup> group, int rank, int size)
      : Backend(rank, size), group_(std::move(group)) {}
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int) override {
    return group_->ask(getRank(), to, tensors.at(0), /*sends=*/true);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int) override {
    return group_->ask(getRank(), from, tensors.at(0), /*sends=*/false);
  }

 private:
  std::shared_ptr<InOrderGroup> group_;
};

}  // namespace dex::test
