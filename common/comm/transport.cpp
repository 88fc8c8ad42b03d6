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
  explicit Hub(int size) : size(size), came(size) {}

  int size;
  std::mutex mutex;
  std::map<std::pair<int, int>, std::deque<Bytes>> mail;  // (from, to) -> messages in order
  std::vector<std::condition_variable> came;              // a message for this rank
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

  void abort(const std::string& reason, ExitCode code) noexcept override {
    const std::lock_guard lock(hub_->mutex);
    if (!hub_->aborted) hub_->reason = reason, hub_->code = code;
    hub_->aborted = true;
    for (auto& rank : hub_->came) rank.notify_all();
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
