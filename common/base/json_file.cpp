#include "common/base/json_file.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/foreign_file.h"

namespace dex {

using nlohmann::json;

namespace {

// Keys and parser messages quote the file, which may be one long string.
std::string shown(const std::string& text) {
  constexpr std::size_t kMax = 160;
  return text.size() <= kMax ? text : text.substr(0, kMax) + "...";
}

}  // namespace

json parse_json_object(std::string_view bytes, const std::string& place) {
  constexpr int kMaxNesting =
      64;  // what is read here nests less than 10 deep; a bomb is stopped before it grows
  std::vector<std::set<std::string>> keys(kMaxNesting + 2);
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    const auto level = std::size_t(depth);
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      require(depth < kMaxNesting, ExitCode::io, "{}: JSON nested deeper than {}", place,
              kMaxNesting);
      keys[level + 1].clear();
    } else if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      require(keys[level].insert(key).second, ExitCode::io,
              "{}: the key \"{}\" stands twice in one object", place, shown(key));
    }
    return true;
  };
  json object;
  try {
    object = json::parse(bytes.begin(), bytes.end(), watch);
  } catch (const json::exception& error) {
    const std::string hint = foreign_file_hint(bytes);
    fail(ExitCode::io, "{}: not JSON ({} bytes): {}", place, bytes.size(),
         hint.empty() ? shown(error.what()) : hint);
  }
  require(object.is_object(), ExitCode::io, "{}: holds a JSON {}; wanted an object", place,
          object.type_name());
  return object;
}

json read_json_object(const std::filesystem::path& path) {
  return parse_json_object(read_file(path), path.string());
}

}  // namespace dex
