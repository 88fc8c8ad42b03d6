// What is asked of a running decoder. Explorer 0 takes what has come and posts it with its answers,
// so every explorer replays the same events, and acts on them in the next round.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "common/base/token.h"
#include "common/explore/limits.h"

namespace dex {

struct Event {
  enum class Kind : std::uint8_t {
    submit,  // decode a text, when those before it are done
    cancel,  // end this text with what is committed; unknown sequences are left alone
    stop     // leave when no text is left
  };
  Kind kind = Kind::stop;
  int sequence = 0;           // submit, cancel
  std::vector<Token> prompt;  // submit
  Limits limits;              // submit
};

class EventQueue {
 public:
  void add(Event event);
  std::vector<Event> take();  // what has come since; does not wait
  std::vector<Event> wait();  // the same, one event at least

 private:
  std::mutex mutex_;
  std::condition_variable come_;
  std::vector<Event> events_;
};

}  // namespace dex
