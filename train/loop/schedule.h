// The learning rate of a step: linear warm-up, then linear decay to zero just past the last step
// (paper, Appendix C.2).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace dex {

struct Schedule {
  std::int64_t total_steps = 1;
  double peak = 1e-3;
  double warmup_share = 0.06;

  std::int64_t warmup_steps() const {
    return std::clamp<std::int64_t>(std::llround(std::ceil(warmup_share * double(total_steps))), 0,
                                    total_steps - 1);
  }

  // `step` counts from 0. No step has rate 0.
  double rate(std::int64_t step) const {
    const std::int64_t warmup = warmup_steps();
    if (step < warmup) return peak * double(step + 1) / double(warmup);
    return peak * double(total_steps - step) / double(total_steps - warmup);
  }
};

}  // namespace dex
