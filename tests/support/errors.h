// What a call throws, for tests that look at code and message.
#pragma once
#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <string>

#include "common/base/error.h"

namespace dex::test {

inline std::optional<Error> error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Fails unless `call` throws Error with `code` and every one of `words` in its message.
inline void check_refused(ExitCode code, const std::vector<std::string>& words,
                          const std::function<void()>& call) {
  const auto error = error_of(call);
  REQUIRE(error);
  INFO(error->what());
  CHECK(error->code() == code);
  for (const std::string& word : words) {
    INFO("wanted in the message: " << word);
    CHECK(std::string(error->what()).find(word) != std::string::npos);
  }
}

}  // namespace dex::test
