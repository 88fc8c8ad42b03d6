// What two JSON objects do not have in common, for messages.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dex {

// A text for each field of `wanted` that `seen` lacks or has differently, with `separator` between
// them; empty when there is none. What `seen` has beside them counts `both_ways` only. `pattern`
// has a place for the field's name, the value seen and the value wanted, in this order, such as
// "{} is {}, wanted {}". A field that is missing is "absent".
std::string json_differences(const nlohmann::json& seen, const nlohmann::json& wanted,
                             const char* pattern, const char* separator = "; ",
                             bool both_ways = false);

}  // namespace dex
