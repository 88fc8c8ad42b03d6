#include "kernels/rank_key.h"

#include <bit>
#include <catch2/catch.hpp>
#include <vector>

namespace dex {
namespace {

constexpr float kInfinity = -kLowest;

TEST_CASE("keys order as the rule says") {
  const std::vector<float> logits{std::bit_cast<float>(0xffffffffu),
                                  std::bit_cast<float>(0x7fc00000u),
                                  kLowest,
                                  -3.0e38f,
                                  -1,
                                  -1e-45f,
                                  -0.0f,
                                  0.0f,
                                  1e-45f,
                                  2,
                                  2.0000002f,
                                  kInfinity};
  const auto plain = [](float logit) { return logit != logit ? kLowest : logit; };
  for (const float a : logits)
    for (const float b : logits)
      for (const int i : {0, 1, 77, 0x7fffffff})
        for (const int j : {0, 1, 77, 0x7fffffff}) {
          const bool better = plain(a) > plain(b) || (plain(a) == plain(b) && i < j);
          CHECK((rank_key(a, i) > rank_key(b, j)) == better);
        }
  for (const float a : logits) {
    CHECK(rank_key(a, 0x7fffffff) != 0);
    CHECK(logit_of(rank_key(a, 5)) == plain(a));
    CHECK(token_of(rank_key(a, 123456)) == 123456);
  }
}

TEST_CASE("the gap is infinite above nothing, and zero where nothing is above") {
  CHECK(gap_of(rank_key(3, 1), rank_key(1, 0)) == 2);
  CHECK(gap_of(rank_key(3, 1), 0) == kInfinity);
  CHECK(gap_of(rank_key(3, 1), rank_key(kLowest, 0)) == kInfinity);
  CHECK(gap_of(rank_key(kLowest, 0), rank_key(kLowest, 1)) == 0);
}

}  // namespace
}  // namespace dex
