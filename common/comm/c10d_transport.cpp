#include "common/comm/c10d_transport.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <thread>
#include <utility>

#include "common/base/error.h"
#include "common/base/start_thread.h"
#include "common/base/within.h"
#include "common/comm/gpu_link.h"
#include "common/comm/nccl.h"
#include "common/comm/peer_inbox.h"
#include "common/comm/process_group.h"
#include "common/comm/rendezvous.h"

namespace dex {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;
using std::chrono::milliseconds;

constexpr std::size_t kSending = 4;        // messages to one rank that may be on their way
constexpr auto kLook = milliseconds(100);  // whether a rank that others connect to has failed
constexpr auto kPoll = std::chrono::microseconds(50);
// for a silent peer to say what it waits for itself
constexpr auto kGrace = milliseconds(250);
// for the others to read what stopped the rank that keeps the store
constexpr auto kStay = milliseconds(1000);

// For tests and benches of ranks on one machine: every message is delivered this long after it was
// sent.
Clock::duration link_delay() {
  const char* text = std::getenv("DEX_LINK_DELAY_MS");
  if (!text) return {};
  double value = -1;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  require(error == std::errc() && *end == 0 && value >= 0 && value <= 1e6, ExitCode::usage,
          "DEX_LINK_DELAY_MS is \"{}\", wanted milliseconds", text);
  return seconds_to_duration(value / 1e3);
}

}  // namespace

class C10dTransport::Group {
 public:
  Group(const RankEnvironment& place, double deadline)
      : place_(place),
        deadline_(seconds_to_duration(deadline)),
        delay_(link_delay()),
        peers_(place.world) {
    const auto end = Clock::now() + deadline_;
    try {
      store_.emplace(place, end);
    } catch (const Error& error) {
      const bool no_thread = place.rank > 0 && Clock::now() < end;  // others come there still
      if (no_thread) Rendezvous::refuse(place, error.code(), error.what());
      throw;
    }
    try {
      store_->wait_for_all(end);
      connect(end);
    } catch (const Error& error) {
      store_->give_up(error, end);
      throw;
    }
  }

  ~Group() { hang_up(); }

  int rank() const { return place_.rank; }
  int size() const { return place_.world; }
  void set_deadline(double seconds) { deadline_ = seconds_to_duration(seconds); }
  void doing(const std::string& what) { doing_ = what; }

  void send(Bytes bytes, int to) {
    Peer& peer = peer_at(to);
    const auto end = Clock::now() + deadline_;
    listen(to);  // or two ranks that send to each other might both wait
    while (peer.sending.size() >= kSending) complete_oldest(peer, to, end);
    Message& message = peer.sending.emplace_back();
    message.bytes = std::move(bytes);
    message.header = {std::int64_t(message.bytes.size()), Clock::now().time_since_epoch().count()};
    try {
      push(message, view_of_bytes(&message.header, sizeof message.header), to,
           header_tag(peer.sent));
      if (!message.bytes.empty())
        push(message, view_of_bytes(message.bytes.data(), message.bytes.size()), to,
             bytes_tag(peer.sent));
    } catch (const std::exception& error) {
      lost(to, first_line(error.what()));
    }
    ++peer.sent;
  }

  Bytes receive(int from) {
    Peer& peer = peer_at(from);
    listen(from);
    auto message = peer.inbox.next(deadline_);
    if (!message) {
      if (const auto reason = peer.inbox.gone()) lost(from, *reason);
      silent(from);
    }
    if (delay_.count() > 0)
      std::this_thread::sleep_until(Clock::time_point(Clock::duration(message->sent)) + delay_);
    return std::move(message->bytes);
  }

  void wait(const std::vector<int>& peers, const std::function<bool()>& done) {
    const auto end = Clock::now() + deadline_;
    for (int peer : peers) listen(peer);
    for (; !is_done(done, peers.front()); std::this_thread::sleep_for(kPoll))
      for (int peer : peers) {
        if (const auto reason = peer_at(peer).inbox.gone()) lost(peer, *reason);
        if (Clock::now() > end) silent(peer);
      }
  }

  std::shared_ptr<GpuLink> connect_gpus(at::Device device, const std::vector<int>& peers) {
    doing("connecting GPUs");
    // A store of its own: a call that waits for a peer holds it, and our failures go by ours.
    const auto store = store_->store()->clone();
    const auto group = [&](const char* name) { return nccl_group(place_, store, name); };
    auto link =
        std::make_shared<GpuLink>(group("up"), group("down"), device,
                                  [this](int peer, const auto& done) { wait({peer}, done); });
    // In a thread, since NCCL's connecting cannot be ended; it is left behind where a peer is lost.
    auto task =
        std::make_shared<std::packaged_task<void()>>([link, peers] { link->connect(peers); });
    auto connected = task->get_future();
    start_thread("connecting GPUs", [task] { (*task)(); }).detach();
    wait(peers, [&] {
      const bool ready = connected.wait_for(milliseconds(0)) == std::future_status::ready;
      if (ready) connected.get();
      return ready;
    });
    return link;
  }

  void finish() {
    doing("taking leave");
    complete_all();
    // An empty message says: all that I have sent was taken. Rank 0 collects them and answers.
    for (int peer = 1; rank() == 0 && peer < size(); ++peer) receive_empty(peer);
    if (rank() > 0) send({}, 0);
    for (int peer = 1; rank() == 0 && peer < size(); ++peer) send({}, peer);
    if (rank() > 0) receive_empty(0);
    complete_all();
  }

  void abort(const std::string& reason, ExitCode code) noexcept {
    if (std::exchange(told_, true)) return;
    store_->post_failure(fmt::format("{} {}", int(code), reason));
    if (place_.rank > 0 || place_.launcher_has_store) return;
    // The others ask the store, which is here, once their connections have ended.
    hang_up();
    std::this_thread::sleep_for(kStay);
  }

 private:
  void hang_up() noexcept {
    for (Peer& peer : peers_) peer.inbox.stop();
    // A send that nobody takes would be waited for: give up on it.
    for (Peer& peer : peers_) {
      for (Message& message : peer.sending)
        for (const Work& work : message.works) work->abort();
      peer.sending.clear();
    }
    group_.reset();
  }

  bool is_done(const std::function<bool()>& done, int peer) {
    try {
      return done();
    } catch (const std::exception& error) {
      lost(peer, first_line(error.what()));
    }
  }

  struct Message {
    MessageHeader header;
    Bytes bytes;
    std::vector<Work> works;
  };
  struct Peer {
    std::deque<Message> sending;  // of the calling thread
    std::int64_t sent = 0;
    PeerInbox inbox;
  };

  void connect(Clock::time_point end) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    // A store of its own: a call that waits for a peer holds it, and heed() goes by ours.
    const auto store = store_->store()->clone();
    using Wire = c10::intrusive_ptr<c10d::Backend>;
    try {
      auto task = std::make_shared<std::packaged_task<Wire()>>([place = place_, store, left] {
        return connect_process_group(place, store, std::max(left, milliseconds(1)));
      });
      auto made = task->get_future();
      start_thread("connecting ranks", [task] { (*task)(); }).detach();
      while (made.wait_for(kLook) != std::future_status::ready) {
        store_->heed();
        require(Clock::now() < end + milliseconds(200), ExitCode::temporary,
                "rank {}, joining: the ranks did not connect to each other in time", place_.rank);
      }
      group_ = made.get();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(ExitCode::temporary, "rank {}, joining: the ranks do not reach each other: {}",
           place_.rank, first_line(error.what()));
    }
  }

  void push(Message& message, at::Tensor tensor, int to, int tag) {
    std::vector<at::Tensor> tensors{std::move(tensor)};
    message.works.push_back(group_->send(tensors, to, tag));
  }

  void complete_oldest(Peer& peer, int to, Clock::time_point end) {
    Message& message = peer.sending.front();
    while (!message.works.empty()) {
      try {
        message.works.front()->wait(std::max(
            milliseconds(1), std::chrono::duration_cast<milliseconds>(end - Clock::now())));
      } catch (const std::exception& error) {
        if (Clock::now() >= end) silent(to);
        lost(to, first_line(error.what()));
      }
      message.works.erase(message.works.begin());
    }
    peer.sending.pop_front();
  }

  void complete_all() {
    const auto end = Clock::now() + deadline_;
    for (int to = 0; to < size(); ++to) {
      Peer& peer = peer_at(to);
      while (!peer.sending.empty()) complete_oldest(peer, to, end);
    }
  }

  void receive_empty(int from) {  // what comes before it nobody has asked for
    while (!receive(from).empty()) {
    }
  }

  Peer& peer_at(int rank) { return peers_.at(rank); }
  void listen(int rank) { peer_at(rank).inbox.listen(*group_, rank); }

  std::string me() const {
    return doing_.empty() ? fmt::format("rank {}", rank())
                          : fmt::format("rank {}, {}", rank(), doing_);
  }

  // A rank that is gone has posted why, unless it was killed.
  [[noreturn]] void lost(int peer, const std::string& reason) {
    if (const auto failure = store_->failure_of(peer)) follow(peer, *failure);
    fail(ExitCode::temporary, "{}: rank {} is gone ({})", me(), peer, reason);
  }

  // A rank that is silent may itself wait for another: it then says so at about the same moment.
  [[noreturn]] void silent(int peer) {
    const std::string text = fmt::format("{}: rank {} sent and took nothing for {:.1f} s", me(),
                                         peer, std::chrono::duration<double>(deadline_).count());
    told_ = true;
    store_->post_failure(fmt::format("{} {}", int(ExitCode::temporary), text));
    for (const auto end = Clock::now() + kGrace; Clock::now() < end;
         std::this_thread::sleep_for(milliseconds(50)))
      if (const auto failure = store_->failure_of(peer))
        throw Error(ExitCode::temporary, text + "; " + failure->substr(failure->find(' ') + 1));
    throw Error(ExitCode::temporary, text);
  }

  [[noreturn]] void follow(int peer, const std::string& failure) {
    const int code = std::atoi(failure.c_str());
    throw Error(ExitCode(code), fmt::format("{}: rank {} has stopped: {}", me(), peer,
                                            failure.substr(failure.find(' ') + 1)));
  }

  RankEnvironment place_;
  Clock::duration deadline_, delay_;
  std::string doing_;
  bool told_ = false;  // the others know what stopped this rank
  std::optional<Rendezvous> store_;
  c10::intrusive_ptr<c10d::Backend> group_;
  std::deque<Peer> peers_;
};

C10dTransport::C10dTransport(std::unique_ptr<Group> group) : group_(std::move(group)) {}
C10dTransport::~C10dTransport() = default;

std::unique_ptr<C10dTransport> C10dTransport::join(const RankEnvironment& place, double deadline) {
  return std::unique_ptr<C10dTransport>(
      new C10dTransport(std::make_unique<Group>(place, deadline)));
}

int C10dTransport::rank() const { return group_->rank(); }
int C10dTransport::size() const { return group_->size(); }
void C10dTransport::send(Bytes message, int to) { group_->send(std::move(message), to); }
Bytes C10dTransport::receive(int from) { return group_->receive(from); }
void C10dTransport::abort(const std::string& reason, ExitCode code) noexcept {
  group_->abort(reason, code);
}
void C10dTransport::doing(const std::string& what) { group_->doing(what); }
void C10dTransport::set_deadline(double seconds) { group_->set_deadline(seconds); }
void C10dTransport::wait(const std::vector<int>& peers, const std::function<bool()>& done) {
  group_->wait(peers, done);
}
std::shared_ptr<GpuLink> C10dTransport::connect_gpus(at::Device device,
                                                     const std::vector<int>& peers) {
  return group_->connect_gpus(device, peers);
}
void C10dTransport::finish() { group_->finish(); }

}  // namespace dex
