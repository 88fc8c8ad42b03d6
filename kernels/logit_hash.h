// The hash of a row of logits: a mix of the bits of each two neighbours, keyed by where they stand,
// summed modulo 2^64. So parts of a row, cut at even ids, are hashed apart and added.
#pragma once
#include <cstdint>

namespace dex {

constexpr std::uint64_t kPairKey = 0x9e3779b97f4a7c15u;
// 32 bits each: a vector multiplies two of 32 bits at once, and of 64 only in pieces
constexpr std::uint32_t kFirstMix = 0x85ebca6bu, kSecondMix = 0xc2b2ae35u;

// Logits of the ids 2 * pair (low) and 2 * pair + 1 (high; 0 where the row ends before). One to one
// for a given pair, so a single change always shows.
constexpr std::uint64_t mixed_pair(std::uint32_t low, std::uint32_t high, int pair) {
  std::uint64_t word = (std::uint64_t{high} << 32 | low) + kPairKey * std::uint64_t(pair + 1);
  word = (word ^ word >> 32) * kFirstMix;
  word = (word ^ word >> 29) * kSecondMix;
  return word ^ word >> 32;
}

}  // namespace dex
