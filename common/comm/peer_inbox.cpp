#include "common/comm/peer_inbox.h"

#include <utility>

#include "common/base/start_thread.h"
#include "common/comm/process_group.h"

namespace dex {
namespace {

using std::chrono::milliseconds;

constexpr auto kEndless =
    milliseconds(std::int64_t{1} << 40);  // readers wait for as long as their rank lives
constexpr std::int64_t kTags = 1 << 30;

}  // namespace

at::Tensor view_of_bytes(void* bytes, std::size_t size) {
  return at::from_blob(bytes, {std::int64_t(size)}, at::kByte);
}

int header_tag(std::int64_t message) { return int(2 * message % kTags); }
int bytes_tag(std::int64_t message) { return int((2 * message + 1) % kTags); }

void PeerInbox::listen(c10d::Backend& group, int from) {
  if (reader_.joinable()) return;
  reader_ = start_thread("what rank " + std::to_string(from) + " sends",
                         [this, &group, from] { read(group, from); });
}

void PeerInbox::stop() {
  if (!reader_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (reading_) reading_->abort();
  }
  reader_.join();
}

std::optional<PeerInbox::Message> PeerInbox::next(Clock::duration patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return !messages_.empty() || gone_; });
  if (messages_.empty()) return std::nullopt;
  Message message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

std::optional<std::string> PeerInbox::gone() {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void PeerInbox::read(c10d::Backend& group, int from) {
  try {
    for (std::int64_t count = 0;; ++count) {
      MessageHeader header;
      if (!take(group, from, view_of_bytes(&header, sizeof header), header_tag(count))) return;
      Message message{Bytes(std::size_t(header.size)), header.sent};
      if (header.size > 0 &&
          !take(group, from, view_of_bytes(message.bytes.data(), message.bytes.size()),
                bytes_tag(count)))
        return;
      const std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
      changed_.notify_all();
    }
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    gone_ = first_line(error.what());
    changed_.notify_all();
  }
}

bool PeerInbox::take(c10d::Backend& group, int from, at::Tensor into, int tag) {
  std::vector<at::Tensor> tensors{std::move(into)};
  c10::intrusive_ptr<c10d::Work> work;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    work = reading_ = group.recv(tensors, from, tag);
  }
  const bool whole = work->wait(kEndless);
  const std::lock_guard lock(mutex_);
  reading_.reset();
  return whole && !stopping_;
}

}  // namespace dex
