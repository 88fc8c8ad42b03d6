#include "common/base/numbers.h"

#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "kernels/numbers_version.h"

namespace dex {

void require_same_numbers(const nlohmann::json& about, const std::string& file,
                          const std::string& way_on) {
  nlohmann::json seen = 1;
  if (about.contains(kNumbersField)) seen = about[kNumbersField];
  require(seen == kNumbersVersion, ExitCode::usage,
          "{}: computed with version {} of the numbers, and this program has version {}, so what "
          "was done would not fit what follows; {}",
          file, seen.dump(), kNumbersVersion, way_on);
}

}  // namespace dex
