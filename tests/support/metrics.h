// Lines of metrics.jsonl without what is measured, for runs that must come out the same.
#pragma once
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace dex::test {

// `once`: of equal lines that follow each other, as an evaluation repeated after an interruption
// leaves, one stays.
inline std::string metrics_without_times(const std::string& text, bool once = false) {
  std::istringstream lines(text);
  std::string kept, last;
  for (std::string line; std::getline(lines, line);) {
    auto json = nlohmann::json::parse(line);
    for (const char* measured : {"seconds", "tokens_per_second", "mfu", "forecast"})
      json.erase(measured);
    if (!once || json.dump() != last) kept += json.dump() + "\n";
    last = json.dump();
  }
  return kept;
}

}  // namespace dex::test
