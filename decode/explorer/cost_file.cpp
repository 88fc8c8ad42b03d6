#include "decode/explorer/cost_file.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/error.h"
#include "common/base/file.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

fs::path users_file() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && *cache) return fs::path(cache) / "dex" / "costs.json";
  if (home && *home) return fs::path(home) / ".cache" / "dex" / "costs.json";
  return {};
}

RowCosts parse_costs(const Json& pairs) {
  std::vector<RowCosts::Point> points;
  for (const Json& pair : pairs)
    points.push_back({pair.at(0).get<int>(), pair.at(1).get<double>()});
  return RowCosts(std::move(points));
}

// Empty where there is no file yet.
Json read_seconds(const fs::path& path) {
  if (path.empty() || !fs::exists(path)) return Json::object();
  try {
    Json seconds = Json::parse(read_file(path)).at("seconds");
    require(seconds.is_object(), ExitCode::usage, "seconds is {}, wanted an object",
            seconds.type_name());
    for (const Json& pairs : seconds) parse_costs(pairs);
    return seconds;
  } catch (const Json::exception& e) {
    fail(ExitCode::usage, "{}: {}; wanted costs of rounds as --costs writes them", path.string(),
         e.what());
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", path.string(), e.what());
  }
}

void write_seconds(const fs::path& path, const Json& seconds) {
  if (path.has_parent_path()) make_directory(path.parent_path());
  write_file(path, Json{{"seconds", seconds}}.dump(1) + "\n");
}

}  // namespace

CostFile::CostFile(fs::path path)
    : named_(!path.empty()), path_(named_ ? std::move(path) : users_file()) {}

std::shared_ptr<const RowCosts> CostFile::of(const std::string& name,
                                             const Measure& measure) const {
  Json seconds = Json::object();
  try {
    seconds = read_seconds(path_);
  } catch (const Error&) {
    if (named_) throw;
  }
  if (seconds.contains(name))
    return std::make_shared<const RowCosts>(parse_costs(seconds.at(name)));
  auto costs = measure();
  Json& pairs = seconds[name] = Json::array();
  for (const RowCosts::Point& p : costs->points()) pairs.push_back({p.rows, p.seconds});
  try {
    if (!path_.empty()) write_seconds(path_, seconds);
  } catch (const Error&) {
    if (named_) throw;
  }
  return costs;
}

}  // namespace dex
