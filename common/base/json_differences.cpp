#include "common/base/json_differences.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace dex {

std::string json_differences(const nlohmann::json& seen, const nlohmann::json& wanted,
                             const char* pattern, const char* separator) {
  std::string text;
  for (const auto& [key, value] : wanted.items()) {
    if (seen.contains(key) && seen[key] == value) continue;
    if (!text.empty()) text += separator;
    text += fmt::format(fmt::runtime(pattern), key,
                        seen.contains(key) ? seen[key].dump() : "absent", value.dump());
  }
  return text;
}

}  // namespace dex
