// Built without the project's flags: it has libc's name.
#include "tests/support/thread_faults.h"

#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>

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

extern "C" int posix_spawnp(pid_t* process, const char* file,
                            const posix_spawn_file_actions_t* actions,
                            const posix_spawnattr_t* attributes, char* const arguments[],
                            char* const environment[]) {
  using Spawn = int(pid_t*, const char*, const posix_spawn_file_actions_t*,
                    const posix_spawnattr_t*, char* const[], char* const[]);
  if (dex::test::refused()) return EAGAIN;
  return reinterpret_cast<Spawn*>(dlsym(RTLD_NEXT, "posix_spawnp"))(
      process, file, actions, attributes, arguments, environment);
}
