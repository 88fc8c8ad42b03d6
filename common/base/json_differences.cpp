#include "common/base/json_differences.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace dex {

std::string json_differences(const nlohmann::json& seen, const nlohmann::json& wanted,
                             const char* pattern, const char* separator, bool both_ways) {
  const auto value = [](const nlohmann::json& object, const std::string& key) {
    return object.contains(key) ? object[key].dump() : "absent";
  };
  nlohmann::json fields = wanted;
  if (both_ways) fields.update(seen);
  std::string text;
  for (const auto& [key, unused] : fields.items()) {
    if (seen.contains(key) && wanted.contains(key) && seen[key] == wanted[key]) continue;
    if (!text.empty()) text += separator;
    text += fmt::format(fmt::runtime(pattern), key, value(seen, key), value(wanted, key));
  }
  return text;
}

}  // namespace dex
