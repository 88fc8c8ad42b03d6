#include <immintrin.h>

#include "kernels/cpu/peak_loops.h"
#include "kernels/peaks.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

namespace dex {
namespace {

LoopCount pairs_of_bf16(float a, float b) {
  const auto va = (__m512bh)_mm512_set1_ps(a), vb = (__m512bh)_mm512_set1_ps(b);
  __m512 sum[kChains];
  for (auto& s : sum) s = _mm512_set1_ps(a);
  for (int i = 0; i < kChainSteps; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm512_dpbf16_ps(sum[j], va, vb);
  }
  for (int j = 1; j < kChains; ++j) sum[0] = _mm512_add_ps(sum[0], sum[j]);
  return {2.0 * 32 * kChains * kChainSteps, _mm512_cvtss_f32(sum[0])};
}

}  // namespace
}  // namespace dex

#pragma GCC pop_options

namespace dex {

double cpu::bf16_dot_rate(ThreadPool& pool) {
  return __builtin_cpu_supports("avx512bf16") ? best_rate(pool, pairs_of_bf16) : 0;
}

}  // namespace dex
