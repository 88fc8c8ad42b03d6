// The arithmetic loops behind peaks.h. Private to kernels/peaks*.cpp.
#pragma once
#include "kernels/thread_pool.h"

namespace dex {

// Sums in flight: enough to hide the latency of a multiply-add, few enough for 16 registers.
constexpr int kChains = 12;
constexpr int kChainSteps = 1 << 16;

struct LoopCount {
  double operations = 0;
  float result = 0;  // to be used by somebody, lest the compiler drop the loop
};
using ArithmeticLoop = LoopCount (*)(float a, float b);

// Operations per second, the best of some runs of the loop by all threads.
double best_rate(ThreadPool& pool, ArithmeticLoop loop);

}  // namespace dex
