// SIGTERM, SIGINT and SIGUSR1 ask a run to save and leave. A second signal ends the process at
// once.
#pragma once

namespace dex {

// Restores what was there before when it goes out of scope. One at a time.
class StopSignal {
 public:
  StopSignal();  // learns of a signal that hold() held back
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  bool raised() const;

  // Signals wait from hold() to the first StopSignal, or to release(), after which they act as they
  // did before.
  static void hold();
  static void release();
};

}  // namespace dex
