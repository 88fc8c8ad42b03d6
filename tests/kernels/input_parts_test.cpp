#include "kernels/input_parts.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

namespace dex {
namespace {

std::vector<int> sizes_of(int in, int unit) {
  const InputParts parts{in, unit};
  std::vector<int> sizes;
  for (int p = 0; p < 8; ++p) sizes.push_back(parts.size(p));
  return sizes;
}

TEST_CASE("an input falls into eight parts as even as whole units allow") {
  using V = std::vector<int>;
  CHECK(sizes_of(4096, 64) == V(8, 512));
  CHECK(sizes_of(14336, 64) == V(8, 1792));
  CHECK(sizes_of(1536, 64) == V(8, 192));
  CHECK(sizes_of(576, 64) == V{64, 64, 64, 64, 64, 64, 64, 128});  // nine heads
  CHECK(sizes_of(384, 64) == V{0, 64, 64, 64, 0, 64, 64, 64});     // six heads
  CHECK(sizes_of(64, 64) == V{0, 0, 0, 0, 0, 0, 0, 64});
  CHECK(sizes_of(11008, 64) == V{1344, 1408, 1344, 1408, 1344, 1408, 1344, 1408});
  CHECK(sizes_of(65, 64) == V{0, 0, 0, 64, 0, 0, 0, 1});
  for (const int unit : {2, 8, 64, 80, 128, 256})
    for (int in = 1; in < 3000; in += 7) {
      const auto sizes = sizes_of(in, unit);
      REQUIRE(std::accumulate(sizes.begin(), sizes.end(), 0) == in);
      for (int p = 0; p < 8; ++p) {
        const int units = (sizes[p] + unit - 1) / unit, all = (in + unit - 1) / unit;
        REQUIRE((units == all / 8 || units == (all + 7) / 8));
        REQUIRE((p == 7 || sizes[p] % unit == 0 || InputParts{in, unit}.begin(p + 1) == in));
      }
    }
  CHECK(InputParts{2000000000, 64}.begin(7) == 1750000000);  // no product overflows
}

TEST_CASE("a share is a subtree of the eight parts") {
  std::vector<PartShare> subtrees;
  for (int first = -1; first < 9; ++first)
    for (int last = -1; last < 10; ++last)
      if (PartShare{first, last}.is_subtree()) subtrees.push_back({first, last});
  REQUIRE(subtrees.size() == 15);  // 8 parts, 4 pairs, 2 halves, the whole
  for (const PartShare s : subtrees) CHECK(s.first % s.count() == 0);
}

TEST_CASE("merging finished sums by level is the balanced tree") {
  // Each sum as the list of its parts, in brackets.
  std::vector<std::string> level(4);
  for (int p = 0; p < 8; ++p) {
    std::string sum(1, char('0' + p));
    const int merges = merges_after(p);
    for (int l = 0; l < merges; ++l) sum = "(" + level[l] + sum + ")";
    level[merges] = sum;
  }
  CHECK(level[3] == "(((01)(23))((45)(67)))");
}

}  // namespace
}  // namespace dex
