// SIGTERM, SIGINT and SIGUSR1 ask a run to save and leave. A second signal ends the process at once.
#pragma once

namespace dex {

// Restores what was there before when it goes out of scope. One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  bool raised() const;
};

}  // namespace dex
