// What rounds cost, kept from one run to the next in a small JSON file:
//   {"seconds": {"what runs where": [[rows, seconds], ...], ...}}
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "common/explore/row_costs.h"

namespace dex {

class CostFile {
 public:
  // No path: costs.json in the user's cache folder (XDG_CACHE_HOME or ~/.cache, then dex).
  explicit CostFile(std::filesystem::path path = {});

  // What is kept by that name; else what `measure` gives, which is then kept. A file that was named
  // and is not as above is Error(usage) with its path, one that cannot be written Error(io). In the
  // user's own either only means that costs are measured again.
  using Measure = std::function<std::shared_ptr<const RowCosts>()>;
  std::shared_ptr<const RowCosts> of(const std::string& name, const Measure& measure) const;

 private:
  bool named_;
  std::filesystem::path path_;  // empty: the user has no folder
};

}  // namespace dex
