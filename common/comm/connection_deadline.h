// A deadline for calls to a server where there is no thread that could be given up on.
#pragma once
#include <chrono>
#include <cstdint>

namespace dex {

// When the time is over, and from then on, it shuts this process's connections to `port` down, so
// that calls that wait there end with an error. It is a timer's signal (SIGALRM): one at a time, in
// a process that is about to end.
class ConnectionDeadline {
 public:
  ConnectionDeadline(std::uint16_t port, std::chrono::milliseconds time);
  ~ConnectionDeadline();
  ConnectionDeadline(const ConnectionDeadline&) = delete;
  ConnectionDeadline& operator=(const ConnectionDeadline&) = delete;
};

}  // namespace dex
