// Catches the one exception type, to assert on its code and its words.
#pragma once
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "common/error.h"

namespace dex::test {

// The message of the Error that `act` throws; fails the test when it throws none or one of another code.
inline std::string message_of(ExitCode code, const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(error.code() == code);
    return error.what();
  }
  FAIL_CHECK("nothing was thrown");
  return "";
}

}  // namespace dex::test
