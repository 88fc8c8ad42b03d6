// One field of a JSON object, of one type, or Error(io) with the place, the field and what it is instead.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/error.h"

namespace dex {

template <typename T>
T json_field(const nlohmann::json& object, const char* name, const std::string& place) {
  const auto found = object.find(name);
  require(found != object.end(), ExitCode::io, "{}: the field \"{}\" is missing", place, name);
  try {
    if (std::is_integral_v<T> && !found->is_number_integer()) fail(ExitCode::io, "{}: {} is {}", place, name, found->dump());
    return found->get<T>();
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::io, "{}: the field \"{}\" is {}: {}", place, name, found->dump(), error.what());
  }
}

}  // namespace dex
