// What the machine does at best: plain loops that measurements of kernels and decoders are held
// against.
#pragma once
#include <cstddef>

#include "kernels/huge_memory.h"
#include "kernels/thread_pool.h"

namespace dex {

// Reads memory that no cache holds and does nothing else. Peaks are the best of many short
// measurements: what disturbs a shared machine only ever takes away.
class ReadPeak {
 public:
  static constexpr int kMegabytes = 256;  // more than the last caches of most machines hold

  ReadPeak();
  // reads all of it; bytes per second of all threads, of the best slice
  double pass(ThreadPool& pool);
  double best() const { return best_; }  // of all passes so far

 private:
  HugeMemory bytes_;
  double best_ = 0;
};

namespace cpu {
// Operations per second of all threads with operands in registers, a multiply and an add being two:
// fused f32, and the instruction that multiplies pairs of bf16 (0 when the CPU has none).
double multiply_add_rate(ThreadPool& pool);
double bf16_dot_rate(ThreadPool& pool);
}  // namespace cpu

}  // namespace dex
