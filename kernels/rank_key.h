// The one rule of which token is best: that of the largest logit, the lowest id among equals. Zeros
// of both signs are equal, NaN counts as -infinity.
#pragma once
#include <cstdint>
#include <limits>

namespace dex {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Of two tokens the one with the greater key is better. 0 is no token's key.
using RankKey = unsigned long long;

constexpr RankKey rank_key(float logit, int token) {
  const float plain = logit == logit ? logit + 0.0f : kLowest;
  const auto bits = __builtin_bit_cast(std::uint32_t, plain);
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return RankKey(ordered) << 32 | ~std::uint32_t(token);
}

constexpr int token_of(RankKey key) { return int(~std::uint32_t(key)); }

// With +0 for -0 and -infinity for NaN.
constexpr float logit_of(RankKey key) {
  const auto ordered = std::uint32_t(key >> 32);
  return __builtin_bit_cast(float, ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

// How far the best logit of a row is above the second; `second` is 0 where there is none.
constexpr float gap_of(RankKey first, RankKey second) {
  if (second == 0 || logit_of(second) == kLowest)
    return logit_of(first) == kLowest ? 0.0f : -kLowest;
  return logit_of(first) - logit_of(second);
}

}  // namespace dex
