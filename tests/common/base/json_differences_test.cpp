#include "common/base/json_differences.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace dex;
using nlohmann::json;

TEST_CASE("differences name field, value seen and value wanted, in the order of the fields") {
  const json seen = {{"a", 1}, {"b", "x"}, {"more", true}},
             wanted = {{"a", 1}, {"b", 2}, {"c", {}}};
  CHECK(json_differences(seen, wanted, "{} is {}, wanted {}") ==
        "b is \"x\", wanted 2; c is absent, wanted null");
  CHECK(json_differences(seen, wanted, "{}: {} | {}", ", ") == "b: \"x\" | 2, c: absent | null");
}

TEST_CASE("what only the seen object has is no difference") {
  CHECK(json_differences({{"a", 1}, {"b", 2}}, {{"a", 1}}, "{} {} {}").empty());
  CHECK(json_differences(json::object(), json::object(), "{} {} {}").empty());
}
