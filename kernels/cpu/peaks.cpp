#include "kernels/peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/peak_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/peaks.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace {

using Words = hn::ScalableTag<std::uint64_t>;

// Eight parts at once: a core fetches faster from eight far places than from one.
std::uint64_t sum_of_words(const char* bytes, std::size_t size) {
  constexpr std::size_t kParts = 8, kVector = hn::MaxLanes(Words()) * sizeof(std::uint64_t);
  const std::size_t part = size / kParts;
  hn::Vec<Words> sum[kParts];
  for (auto& s : sum) s = hn::Zero(Words());
  for (std::size_t at = 0; at < part; at += kVector) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kParts; ++i)
      sum[i] = hn::Add(
          sum[i],
          hn::LoadU(Words(), reinterpret_cast<const std::uint64_t*>(bytes + at + i * part)));
  }
  for (std::size_t i = 1; i < kParts; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  return hn::GetLane(hn::SumOfLanes(Words(), sum[0]));
}

LoopCount multiply_adds(float a, float b) {
  const auto va = hn::Set(Floats(), a), vb = hn::Set(Floats(), b);
  hn::Vec<Floats> sum[kChains];
  for (auto& s : sum) s = va;
  for (int i = 0; i < kChainSteps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = hn::MulAdd(va, vb, sum[j]);
  }
  for (int j = 1; j < kChains; ++j) sum[0] = hn::Add(sum[0], sum[j]);
  return {2.0 * hn::MaxLanes(Floats()) * kChains * kChainSteps, sum_of(Floats(), sum[0])};
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(sum_of_words);
HWY_EXPORT(multiply_adds);

namespace {

constexpr std::size_t kMegabyte = std::size_t{1} << 20;
// megabytes timed at once: some milliseconds, so that an undisturbed slice is likely
constexpr int kSlice = 32;

template <typename Call>
double seconds_of(Call call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

ReadPeak::ReadPeak() : bytes_(kMegabyte * kMegabytes) {
  // or all pages would be the one page of zeros
  std::memset(bytes_.data(), 1, kMegabyte * kMegabytes);
}

double ReadPeak::pass(ThreadPool& pool) {
  double best = 0;
  for (int first = 0; first + kSlice <= kMegabytes; first += kSlice) {
    std::atomic<std::uint64_t> sum{0};
    const double seconds = seconds_of([&] {
      pool.run(kSlice, [&](int part) {
        sum += HWY_DYNAMIC_DISPATCH(sum_of_words)(
            bytes_.data() + kMegabyte * std::size_t(first + part), kMegabyte);
      });
    });
    best = std::max(best, double(kMegabyte) * kSlice / seconds);
  }
  best_ = std::max(best_, best);
  return best;
}

double best_rate(ThreadPool& pool, ArithmeticLoop loop) {
  const int parts = 2 * pool.threads();
  volatile float a = 1e-3f, b = 1e-3f;  // not known when compiling
  std::atomic<float> sink{0};
  const double operations = parts * loop(a, b).operations;
  double best = 0;
  for (int i = 0; i < 50; ++i)
    best = std::max(best, operations / seconds_of([&] {
                            pool.run(parts, [&](int) { sink = loop(a, b).result; });
                          }));
  return best;
}

double cpu::multiply_add_rate(ThreadPool& pool) {
  return best_rate(pool,
                   [](float a, float b) { return HWY_DYNAMIC_DISPATCH(multiply_adds)(a, b); });
}

}  // namespace dex
#endif
