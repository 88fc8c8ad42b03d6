// out/best: the adapters that need the fewest DECS hops on held-out text, of all evaluations so
// far. Files as in any adapter directory, and best.json with the step and its scores. Replaced as a
// whole.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "checkpoints/adapter_file.h"
#include "train/reports/evaluation.h"

namespace dex {

class BestAdapters {
 public:
  // Goes on with what lies in `dir`, or, when the run starts `fresh`, removes it. What is damaged
  // counts as none.
  BestAdapters(std::filesystem::path dir, bool fresh);

  // Keeps these adapters if they are better than all before; the earlier ones win a draw. A step
  // that is evaluated again after an interruption gives the same scores, so the result does not
  // depend on interruptions.
  void offer(std::int64_t step, const ExitScores& scores, const AdapterConfig& config,
             const std::map<std::string, StoredTensor>& tensors);

  std::optional<std::int64_t> step() const { return step_; }

 private:
  std::filesystem::path dir_;
  std::optional<std::int64_t> step_;
  double decs_hops_ = 0;
};

}  // namespace dex
