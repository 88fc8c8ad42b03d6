#include "train/loop/stop_signal.h"

#include <signal.h>

namespace dex {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};
volatile sig_atomic_t stop_wanted = 0;
struct sigaction before[3];

void set_held(int how) {
  sigset_t set;
  sigemptyset(&set);
  for (int number : kSignals) sigaddset(&set, number);
  sigprocmask(how, &set, nullptr);
}

// SA_RESETHAND has put back the default for this signal only; the other two go the same way.
void on_signal(int) {
  stop_wanted = 1;
  for (int number : kSignals) signal(number, SIG_DFL);
}

}  // namespace

StopSignal::StopSignal() {
  stop_wanted = 0;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = int(SA_RESETHAND) | SA_RESTART;
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &action, &before[i]);
  release();
}

StopSignal::~StopSignal() {
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &before[i], nullptr);
}

void StopSignal::hold() { set_held(SIG_BLOCK); }
void StopSignal::release() { set_held(SIG_UNBLOCK); }

bool StopSignal::raised() const { return stop_wanted != 0; }

}  // namespace dex
