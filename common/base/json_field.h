// One field of a JSON object, of one type, or Error(io) with the place, the field and what it is
// instead. A number that the type cannot hold is refused, never rounded or cut.
#pragma once
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace dex {

template <typename T>
struct JsonHolds {
  static bool in(const nlohmann::json& value) {
    if constexpr (std::is_same_v<T, nlohmann::json>)
      return true;
    else if constexpr (std::is_same_v<T, std::string>)
      return value.is_string();
    else if constexpr (std::is_same_v<T, bool>)
      return value.is_boolean();
    else if constexpr (std::is_floating_point_v<T>)
      return value.is_number();
    else if (value.is_number_unsigned())
      return std::in_range<T>(value.get<std::uint64_t>());
    else
      return value.is_number_integer() && std::in_range<T>(value.get<std::int64_t>());
  }
};
template <typename T>
struct JsonHolds<std::vector<T>> {
  static bool in(const nlohmann::json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(),
                                           [](const auto& one) { return JsonHolds<T>::in(one); });
  }
};
template <typename T>
struct JsonHolds<std::map<std::string, T>> {
  static bool in(const nlohmann::json& value) {
    return value.is_object() && std::all_of(value.begin(), value.end(),
                                            [](const auto& one) { return JsonHolds<T>::in(one); });
  }
};

template <typename T>
T json_field(const nlohmann::json& object, const char* name, const std::string& place) {
  const auto found = object.find(name);
  require(found != object.end(), ExitCode::io, "{}: the field \"{}\" is missing", place, name);
  const auto shown = [&] {
    return found->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 100);
  };
  if (!JsonHolds<T>::in(*found))
    fail(ExitCode::io, "{}: the field \"{}\" is {}, which is of another type or out of range",
         place, name, shown());
  return found->get<T>();
}

}  // namespace dex
