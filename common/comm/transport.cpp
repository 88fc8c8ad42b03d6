#include "common/comm/transport.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "common/base/error.h"

namespace dex {
namespace {

// What the ranks of one process share.
struct Hub {
  explicit Hub(int size) : size(size), came(std::size_t(size)), gathered(std::size_t(size)) {}

  int size;
  std::mutex mutex;
  std::map<std::pair<int, int>, std::deque<Bytes>> mail;  // (from, to) -> messages in order
  std::vector<std::condition_variable> came;              // a message for this rank
  std::condition_variable gather_changed;
  std::vector<Bytes> gathered;
  int arrived = 0, left = 0;
  bool aborted = false;
  std::string reason;
  ExitCode code = ExitCode::temporary;

  template <typename Condition>
  void wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
            Condition condition) {
    changed.wait(lock, [&] { return aborted || condition(); });
    require(!aborted, code, "a peer stopped: {}", reason);
  }
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->size; }

  void send(Bytes message, int to) override {
    const std::lock_guard lock(hub_->mutex);
    hub_->mail[{rank_, to}].push_back(std::move(message));
    hub_->came[to].notify_one();
  }

  Bytes receive(int from) override {
    std::unique_lock lock(hub_->mutex);
    auto& box = hub_->mail[{from, rank_}];
    hub_->wait(hub_->came[rank_], lock, [&] { return !box.empty(); });
    Bytes message = std::move(box.front());
    box.pop_front();
    return message;
  }

  std::vector<Bytes> all_gather(Bytes mine) override {
    std::unique_lock lock(hub_->mutex);
    // the previous gather is read by all
    hub_->wait(hub_->gather_changed, lock, [&] { return hub_->left == 0; });
    hub_->gathered[rank_] = std::move(mine);
    if (++hub_->arrived == hub_->size) {
      hub_->arrived = 0;
      hub_->left = hub_->size;
      hub_->gather_changed.notify_all();
    } else {
      hub_->wait(hub_->gather_changed, lock, [&] { return hub_->left > 0; });
    }
    std::vector<Bytes> all = hub_->gathered;
    if (--hub_->left == 0) hub_->gather_changed.notify_all();
    return all;
  }

  void abort(const std::string& reason, ExitCode code) noexcept override {
    const std::lock_guard lock(hub_->mutex);
    if (!hub_->aborted) hub_->reason = reason, hub_->code = code;
    hub_->aborted = true;
    for (auto& rank : hub_->came) rank.notify_all();
    hub_->gather_changed.notify_all();
  }

 private:
  std::shared_ptr<Hub> hub_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> local_transports(int size) {
  auto hub = std::make_shared<Hub>(size);
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_unique<LocalTransport>(hub, rank));
  return ranks;
}

}  // namespace dex
