#include "common/base/numbers.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "kernels/numbers_version.h"
#include "tests/support/errors.h"

namespace dex {
namespace {

TEST_CASE("numbers of another version are refused, naming both and the way on") {
  const int now = kNumbersVersion;
  CHECK_NOTHROW(require_same_numbers({{"numbers_version", now}}, "run.json", "start anew"));
  for (const nlohmann::json& about :
       {nlohmann::json{{"numbers_version", 1}}, nlohmann::json{{"seed", 3}}})
    test::check_refused(
        ExitCode::usage,
        {"run.json: ", "version 1 of", "version " + std::to_string(now), "start anew"},
        [&] { require_same_numbers(about, "run.json", "start anew"); });
  test::check_refused(ExitCode::usage, {"version 99 of"}, [] {
    require_same_numbers({{"numbers_version", 99}}, "run.json", "start anew");
  });
  test::check_refused(ExitCode::usage, {"version \"two\" of"}, [] {
    require_same_numbers({{"numbers_version", "two"}}, "run.json", "start anew");
  });
}

}  // namespace
}  // namespace dex
