// What one rank sends, taken by a thread as soon as it comes, so that the sender never waits for
// us.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/comm/rendezvous.h"
#include "common/comm/transport.h"

namespace dex {

// A message is a header and, unless it is empty, its bytes, each a tensor with a tag of its own.
struct MessageHeader {
  std::int64_t size, sent;  // bytes; nanoseconds of the sender's steady clock
};
at::Tensor view_of_bytes(void* bytes, std::size_t size);
int header_tag(std::int64_t message);  // the number of the message between two ranks
int bytes_tag(std::int64_t message);

class PeerInbox {
 public:
  struct Message {
    Bytes bytes;
    std::int64_t sent = 0;
  };

  ~PeerInbox() { stop(); }
  void listen(c10d::Backend& group, int from);  // from now on; later calls do nothing
  void stop();

  // nothing when none came in time, or none will come
  std::optional<Message> next(Clock::duration patience);
  std::optional<std::string> gone();  // why none will come

 private:
  void read(c10d::Backend& group, int from);
  bool take(c10d::Backend& group, int from, at::Tensor into, int tag);  // false when told to stop

  std::thread reader_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Message> messages_;
  std::optional<std::string> gone_;
  c10::intrusive_ptr<c10d::Work> reading_;
  bool stopping_ = false;
};

}  // namespace dex
