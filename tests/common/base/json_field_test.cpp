#include "common/base/json_field.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tests/support/errors.h"

using dex::json_field;
using nlohmann::json;

namespace {

template <typename T>
bool takes(const json& value) {
  const auto error = dex::test::error_of([&] { json_field<T>(json{{"x", value}}, "x", "place"); });
  if (error) CHECK(error->code() == dex::ExitCode::io);
  if (error) CHECK(std::string(error->what()).starts_with("place: "));
  return !error;
}

}  // namespace

TEST_CASE("a field is taken only by a type that holds its value") {
  CHECK(json_field<int>(json{{"x", -7}}, "x", "p") == -7);
  CHECK(takes<int>(2147483647));
  CHECK_FALSE(takes<int>(2147483648));
  CHECK_FALSE(takes<int>(-2147483649));
  CHECK_FALSE(takes<int>(1.0));
  CHECK_FALSE(takes<int>(true));
  CHECK_FALSE(takes<int>("1"));
  CHECK_FALSE(takes<int>(nullptr));
  CHECK(takes<std::int64_t>(std::numeric_limits<std::int64_t>::min()));
  CHECK_FALSE(takes<std::int64_t>(std::uint64_t{1} << 63));
  CHECK(takes<std::uint64_t>(std::numeric_limits<std::uint64_t>::max()));
  CHECK_FALSE(takes<std::uint64_t>(-1));
  CHECK(takes<double>(1));
  CHECK_FALSE(takes<double>("1"));
  CHECK_FALSE(takes<std::string>(1));
  CHECK_FALSE(takes<bool>(1));
  CHECK(takes<std::vector<int>>(json{1, 2}));
  CHECK(takes<std::vector<int>>(json::array()));
  CHECK_FALSE(takes<std::vector<int>>(json{1, 4294967297}));
  CHECK_FALSE(takes<std::vector<int>>(json{1, "2"}));
  CHECK_FALSE(takes<std::vector<int>>(json{{"a", 1}}));
  CHECK_FALSE(takes<std::vector<int>>(1));
  CHECK(takes<json>(nullptr));
}

TEST_CASE("a missing field and a long one are told in one short line") {
  dex::test::check_refused(dex::ExitCode::io, {"place", "\"x\"", "missing"},
                           [] { json_field<int>(json{{"y", 1}}, "x", "place"); });
  const auto error = dex::test::error_of(
      [] { json_field<int>(json{{"x", std::string(5000, 'a')}}, "x", "place"); });
  REQUIRE(error);
  CHECK(std::string(error->what()).size() < 300);
}
