#include "common/c10d_transport.h"

#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "common/error.h"
#include "common/meeting_store.h"
#include "common/process_group.h"
#include "common/within.h"

namespace dex {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;
using std::chrono::milliseconds;

constexpr auto kEndless =
    milliseconds(std::int64_t{1} << 40);  // readers wait for as long as their rank lives
constexpr std::size_t kSending = 4;       // messages to one rank that may be on their way
constexpr std::int64_t kTags = 1 << 30;
constexpr auto kGrace = milliseconds(250);  // for others to leave or to read word of what stopped them

struct Header {
  std::int64_t size, sent;  // bytes; nanoseconds of the sender's steady clock
};

// For tests and benches of ranks on one machine: every message is delivered this long after it was sent.
Clock::duration link_delay() {
  const char* text = std::getenv("DEX_LINK_DELAY_MS");
  if (!text) return {};
  double value = -1;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  require(error == std::errc() && *end == 0 && value >= 0 && value <= 1e6, ExitCode::usage,
          "DEX_LINK_DELAY_MS is \"{}\", wanted milliseconds", text);
  return seconds_to_duration(value / 1e3);
}

at::Tensor view_of_bytes(void* bytes, std::size_t size) {
  return at::from_blob(bytes, {static_cast<std::int64_t>(size)}, at::kByte);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

class C10dTransport::Group {
 public:
  Group(const RankEnvironment& place, double deadline)
      : place_(place),
        deadline_(seconds_to_duration(deadline)),
        delay_(link_delay()),
        peers_(static_cast<std::size_t>(place.world)) {
    const auto end = Clock::now() + deadline_;
    store_.emplace(place, end);
    store_->wait_for_all(end);
    connect(end);
  }

  ~Group() {
    for (Peer& peer : peers_) stop(peer);
    // A send that nobody takes would be waited for: give up on it.
    for (Peer& peer : peers_)
      for (Message& message : peer.sending)
        for (const Work& work : message.works) work->abort();
  }

  int rank() const { return place_.rank; }
  int size() const { return place_.world; }
  void set_deadline(double seconds) { deadline_ = seconds_to_duration(seconds); }
  void doing(const std::string& what) { doing_ = what; }

  void send(Bytes bytes, int to) {
    Peer& peer = peers_.at(static_cast<std::size_t>(to));
    const auto end = Clock::now() + deadline_;
    listen(to);  // or two ranks that send to each other might both wait
    while (peer.sending.size() >= kSending) complete_oldest(peer, to, end);
    Message& message = peer.sending.emplace_back();
    message.bytes = std::move(bytes);
    message.header = {static_cast<std::int64_t>(message.bytes.size()),
                      Clock::now().time_since_epoch().count()};
    try {
      push(message, view_of_bytes(&message.header, sizeof message.header), to, 2 * peer.sent % kTags);
      if (!message.bytes.empty())
        push(message, view_of_bytes(message.bytes.data(), message.bytes.size()), to,
             (2 * peer.sent + 1) % kTags);
    } catch (const std::exception& error) {
      lost(to, first_line(error.what()));
    }
    ++peer.sent;
  }

  Bytes receive(int from) {
    Peer& peer = peers_.at(static_cast<std::size_t>(from));
    listen(from);
    std::unique_lock lock(peer.mutex);
    const bool in_time =
        peer.changed.wait_for(lock, deadline_, [&] { return !peer.inbox.empty() || peer.gone; });
    if (peer.inbox.empty()) {
      lock.unlock();
      in_time ? lost(from, *peer.gone) : silent(from);
    }
    Arrived arrived = std::move(peer.inbox.front());
    peer.inbox.pop_front();
    lock.unlock();
    if (delay_.count() > 0)
      std::this_thread::sleep_until(Clock::time_point(Clock::duration(arrived.sent)) + delay_);
    return std::move(arrived.bytes);
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
    store_->leave_word(fmt::format("{} {}", static_cast<int>(code), reason));
    // Who asks the store on this rank for the reason gets the time to do so.
    if (place_.rank == 0 && !place_.launcher_has_store) std::this_thread::sleep_for(kGrace);
  }

 private:
  struct Message {
    Header header;
    Bytes bytes;
    std::vector<Work> works;
  };
  struct Arrived {
    Bytes bytes;
    std::int64_t sent = 0;
  };
  struct Peer {
    std::deque<Message> sending;  // of the calling thread
    std::int64_t sent = 0;

    std::thread reader;
    std::mutex mutex;  // of what follows
    std::condition_variable changed;
    std::deque<Arrived> inbox;
    std::optional<std::string> gone;  // why nothing more will come
    Work reading;
    bool stopping = false;
  };

  void connect(Clock::time_point end) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    try {
      auto made = within(end + milliseconds(200), [place = place_, store = store_->store(), left] {
        return connect_process_group(place, store, std::max(left, milliseconds(1)));
      });
      require(made.has_value(), ExitCode::temporary,
              "rank {}, joining: the ranks did not connect to each other in time", place_.rank);
      group_ = *made;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(ExitCode::temporary, "rank {}, joining: the ranks do not reach each other: {}", place_.rank,
           first_line(error.what()));
    }
  }

  void push(Message& message, at::Tensor tensor, int to, std::int64_t tag) {
    std::vector<at::Tensor> tensors{std::move(tensor)};
    message.works.push_back(group_->send(tensors, to, static_cast<int>(tag)));
  }

  void complete_oldest(Peer& peer, int to, Clock::time_point end) {
    Message& message = peer.sending.front();
    while (!message.works.empty()) {
      try {
        message.works.front()->wait(
            std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(end - Clock::now())));
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
      Peer& peer = peers_[static_cast<std::size_t>(to)];
      while (!peer.sending.empty()) complete_oldest(peer, to, end);
    }
  }

  void receive_empty(int from) {  // what comes before it nobody has asked for
    while (!receive(from).empty()) {
    }
  }

  void listen(int to) {
    Peer& peer = peers_[static_cast<std::size_t>(to)];
    if (!peer.reader.joinable()) peer.reader = std::thread([this, to] { read(to); });
  }

  // A reader: takes what a rank sends as soon as it comes, so that senders never wait for us.
  void read(int from) {
    Peer& peer = peers_[static_cast<std::size_t>(from)];
    try {
      for (std::int64_t count = 0;; ++count) {
        Header header;
        if (!take(peer, from, view_of_bytes(&header, sizeof header), 2 * count % kTags)) return;
        Arrived arrived{Bytes(static_cast<std::size_t>(header.size)), header.sent};
        if (header.size > 0 && !take(peer, from, view_of_bytes(arrived.bytes.data(), arrived.bytes.size()),
                                     (2 * count + 1) % kTags))
          return;
        const std::lock_guard lock(peer.mutex);
        peer.inbox.push_back(std::move(arrived));
        peer.changed.notify_all();
      }
    } catch (const std::exception& error) {
      const std::lock_guard lock(peer.mutex);
      peer.gone = first_line(error.what());
      peer.changed.notify_all();
    }
  }

  bool take(Peer& peer, int from, at::Tensor into, std::int64_t tag) {  // false when told to stop
    std::vector<at::Tensor> tensors{std::move(into)};
    Work work;
    {
      const std::lock_guard lock(peer.mutex);
      if (peer.stopping) return false;
      work = peer.reading = group_->recv(tensors, from, static_cast<int>(tag));
    }
    const bool whole = work->wait(kEndless);
    const std::lock_guard lock(peer.mutex);
    peer.reading.reset();
    return whole && !peer.stopping;
  }

  void stop(Peer& peer) {
    if (!peer.reader.joinable()) return;
    {
      const std::lock_guard lock(peer.mutex);
      peer.stopping = true;
      if (peer.reading) peer.reading->abort();
    }
    peer.reader.join();
  }

  std::string me() const {
    return doing_.empty() ? fmt::format("rank {}", rank()) : fmt::format("rank {}, {}", rank(), doing_);
  }

  // A rank that is gone has left word why, unless it was killed.
  [[noreturn]] void lost(int peer, const std::string& reason) {
    if (const auto word = store_->word_of(peer)) follow(peer, *word);
    fail(ExitCode::temporary, "{}: rank {} is gone ({})", me(), peer, reason);
  }

  // A rank that is silent may itself wait for another: it then says so at about the same moment.
  [[noreturn]] void silent(int peer) {
    const std::string text = fmt::format("{}: rank {} sent and took nothing for {:.1f} s", me(), peer,
                                         std::chrono::duration<double>(deadline_).count());
    told_ = true;
    store_->leave_word(fmt::format("{} {}", static_cast<int>(ExitCode::temporary), text));
    for (const auto end = Clock::now() + kGrace; Clock::now() < end;
         std::this_thread::sleep_for(milliseconds(50)))
      if (const auto word = store_->word_of(peer))
        throw Error(ExitCode::temporary, text + "; " + word->substr(word->find(' ') + 1));
    throw Error(ExitCode::temporary, text);
  }

  [[noreturn]] void follow(int peer, const std::string& word) {
    const int code = std::atoi(word.c_str());
    throw Error(static_cast<ExitCode>(code),
                fmt::format("{}: rank {} has stopped: {}", me(), peer, word.substr(word.find(' ') + 1)));
  }

  RankEnvironment place_;
  Clock::duration deadline_, delay_;
  std::string doing_;
  bool told_ = false;  // the others know what stopped this rank
  std::optional<MeetingStore> store_;
  c10::intrusive_ptr<c10d::Backend> group_;
  std::deque<Peer> peers_;
};

C10dTransport::C10dTransport(std::unique_ptr<Group> group) : group_(std::move(group)) {}
C10dTransport::~C10dTransport() = default;

std::unique_ptr<C10dTransport> C10dTransport::join(const RankEnvironment& place, double deadline) {
  return std::unique_ptr<C10dTransport>(new C10dTransport(std::make_unique<Group>(place, deadline)));
}

int C10dTransport::rank() const { return group_->rank(); }
int C10dTransport::size() const { return group_->size(); }
void C10dTransport::send(Bytes message, int to) { group_->send(std::move(message), to); }
Bytes C10dTransport::receive(int from) { return group_->receive(from); }
void C10dTransport::abort(const std::string& reason, ExitCode code) noexcept { group_->abort(reason, code); }
void C10dTransport::doing(const std::string& what) { group_->doing(what); }
void C10dTransport::set_deadline(double seconds) { group_->set_deadline(seconds); }
void C10dTransport::finish() { group_->finish(); }

std::vector<Bytes> C10dTransport::all_gather(Bytes mine) {
  std::vector<Bytes> all(static_cast<std::size_t>(size()));
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) send(mine, peer);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) all[static_cast<std::size_t>(peer)] = receive(peer);
  all[static_cast<std::size_t>(rank())] = std::move(mine);
  return all;
}

}  // namespace dex
