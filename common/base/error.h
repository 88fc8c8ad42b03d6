// The one exception of the project. Its exit code says who can help: the user (2), the disk (74), a
// retry (75), us (1).
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace dex {

enum class ExitCode : int { done = 0, bug = 1, usage = 2, bad_rows = 3, io = 74, temporary = 75 };

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Throws Error. The message names the place, the value seen and the value wanted.
template <typename... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> message, Args&&... args) {
  throw Error(code, fmt::format(message, std::forward<Args>(args)...));
}

template <typename... Args>
void require(bool holds, ExitCode code, fmt::format_string<Args...> message, Args&&... args) {
  if (!holds) fail(code, message, std::forward<Args>(args)...);
}

}  // namespace dex
