#include "train/reports/live_line.h"

#include <fmt/format.h>

namespace dex {

std::string LiveLine::note(const LiveFigures& step) {
  tokens_ += step.tokens;
  flops_ += step.flops;
  seconds_ += step.seconds;
  skipped_ += step.skipped;
  std::string loss = "loss", agreement = "agree";
  for (std::size_t k = 0; k < depths_.size(); ++k) {
    loss += fmt::format(" @{} {:.3f}", depths_[k], step.loss[k]);
    agreement += fmt::format(" {:.1f}%", 100 * step.agreement[k]);
  }
  std::string text =
      fmt::format("{}  {}  {:.0f} tok/s", loss, agreement, seconds_ > 0 ? tokens_ / seconds_ : 0);
  if (gemm_peak_ > 0) text += fmt::format("  MFU {:.1f}%", 100 * mfu(flops_, seconds_));
  if (skipped_ > 0) text += fmt::format("  {} skipped", skipped_);
  return text;
}

}  // namespace dex
