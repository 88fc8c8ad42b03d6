// Built without the project's flags: it has libc's name.
#include "tests/support/thread_faults.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace dex::test {
namespace {

std::atomic<int>& left() {
  static std::atomic<int>& one = *new std::atomic<int>([] {
    const char* named = std::getenv("DEX_FAULT_THREAD");
    return named ? std::atoi(named) : -1;
  }());
  return one;
}

bool refused() {
  int now = left();
  while (now > 0 && !left().compare_exchange_weak(now, now - 1)) {
  }
  return now == 0;
}

}  // namespace

void give_threads(int given) { left() = given; }

}  // namespace dex::test

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (dex::test::refused()) return EAGAIN;
  return reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, run,
                                                                       argument);
}
