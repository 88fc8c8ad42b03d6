#include "decode/methods/method.h"

#include <catch2/catch.hpp>

#include "decode/session.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

Method method(const std::string& name, std::optional<double> seconds, std::string asked_by = "") {
  return {.name = name,
          .summary = "of " + name,
          .is_reference = name == "plain",
          .asked_by = [asked_by] { return asked_by; },
          .estimate = [seconds](const Session&) { return seconds; }};
}

TEST_CASE("where no method is named, the quickest by estimate is taken, and the log can say why") {
  const test::TempDir dir;
  const Session session({.model = test::TinyModel().write(dir / "model"), .threads = 1});
  std::string why;
  const auto name_of = [&](std::vector<Method> methods) {
    return Methods(std::move(methods)).fastest(session, why).name;
  };
  CHECK(name_of({method("a", 0.002), method("b", 0.001), method("plain", 0.003)}) == "b");
  CHECK(why == "b (of b): estimated ms a token here: a 2.0, b 1.0, plain 3.0; --method forces one");
  // one that cannot be is not told of
  CHECK(name_of({method("a", std::nullopt), method("plain", 0.003)}) == "plain");
  CHECK(why == "plain (of plain): estimated ms a token here: plain 3.0; --method forces one");
  // an option that means one method chooses it, however slow
  CHECK(name_of({method("a", 9.0, "--width"), method("plain", 0.003)}) == "a");
  CHECK(why == "a (of a), as --width is given");
  // the first of equals
  CHECK(name_of({method("a", 0.002), method("plain", 0.002)}) == "a");
}

}  // namespace
}  // namespace dex
