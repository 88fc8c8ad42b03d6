// What stands behind the bar of a training run: loss and agreement per depth, tokens per second,
// MFU.
#pragma once
#include <string>
#include <vector>

namespace dex {

struct LiveFigures {                    // of a step
  std::vector<double> loss, agreement;  // per depth
  double tokens = 0, flops = 0, seconds = 0;
  bool skipped = false;
};

class LiveLine {
 public:
  // `gemm_peak`: operations per second that MFU is measured against; 0: no MFU.
  LiveLine(std::vector<int> depths, double gemm_peak)
      : depths_(std::move(depths)), gemm_peak_(gemm_peak) {}

  std::string note(const LiveFigures& step);  // speeds are means over the steps it was told of
  double mfu(const LiveFigures& step) const { return mfu(step.flops, step.seconds); }

 private:
  double mfu(double flops, double seconds) const {
    return gemm_peak_ > 0 && seconds > 0 ? flops / seconds / gemm_peak_ : 0;
  }

  std::vector<int> depths_;
  double gemm_peak_, tokens_ = 0, flops_ = 0, seconds_ = 0;
  int skipped_ = 0;
};

}  // namespace dex
