// A thread, or an error that says what it was wanted for.
#pragma once
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "common/base/error.h"

namespace dex {

// Error(temporary) where the system gives none. Whoever starts several ends those that were made
// and tells those that would wait for one that was not.
template <typename Call>
std::thread start_thread(const std::string& purpose, Call call) {
  try {
    return std::thread(std::move(call));
  } catch (const std::system_error& error) {
    fail(ExitCode::temporary,
         "the system refuses a thread for {}: {}; fewer threads, or a higher limit of processes "
         "or memory, may help",
         purpose, error.code().message());
  }
}

}  // namespace dex
