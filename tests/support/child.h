// What a test does in a process of its own: crashes, limits and kills stay there.
#pragma once
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>

namespace dex::test {

// The wait status of a child that runs `act` and leaves with its result by exit(), static
// destructors included; 99 when something is thrown.
inline int status_in_child(const std::function<int()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 99;
    try {
      code = act();
    } catch (...) {
    }
    std::exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// Its exit code, or 1000 + the signal that ended it.
inline int code_in_child(const std::function<int()>& act) {
  const int status = status_in_child(act);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// For the rest of the process: no file grows over `bytes`, as on a full disk.
inline void limit_file_size(rlim_t bytes) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_FSIZE, &limit);
}

// For the rest of the process: this much more memory than now. The address sanitizer reserves
// address space by the terabyte, so nothing is limited there.
inline void limit_memory(rlim_t more) {
#if !defined(__SANITIZE_ADDRESS__)
  unsigned long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * 4096 + more;
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
#else
  (void)more;
#endif
}

}  // namespace dex::test
