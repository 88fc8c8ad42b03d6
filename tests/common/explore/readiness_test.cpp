#include "common/explore/readiness.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

using dex::Readiness;
using dex::Token;
using Ranked = std::vector<std::vector<Token>>;

namespace {

// Eq. (1): the smallest exit whose candidate is the reference.
int first_match(const Ranked& ranked) {
  for (int k = 0;; ++k)
    if (ranked[k][0] == ranked.back()[0]) return k;
}

// Eq. (3): the smallest exit such that every exit from it on agrees.
int stable(const Ranked& ranked) {
  const int exits = ranked.size();
  for (int k = 0;; ++k) {
    bool all = true;
    for (int j = k; j < exits; ++j) all = all && ranked[j][0] == ranked.back()[0];
    if (all) return k;
  }
}

// Section 3: each non-final exit in turn proposes its best token among those nobody has proposed
// yet.
int decs_branch(const Ranked& ranked) {
  std::set<Token> taken;
  for (std::size_t k = 0; k + 1 < ranked.size(); ++k) {
    const auto best = std::find_if(ranked[k].begin(), ranked[k].end(),
                                   [&](Token t) { return !taken.contains(t); });
    if (best == ranked[k].end()) continue;
    if (*best == ranked.back()[0]) return int(k);
    taken.insert(*best);
  }
  return int(ranked.size()) - 1;
}

void check(const Ranked& ranked, int first, int stable, int branch) {
  const Readiness result = dex::readiness(ranked);
  CHECK(result.first == first);
  CHECK(result.stable == stable);
  CHECK(result.decs_branch == branch);
}

}  // namespace

TEST_CASE("readiness of chosen rankings") {
  check({{5}}, 0, 0, 0);
  check({{5}, {5}}, 0, 0, 0);
  check({{1, 5}, {5, 1}}, 1, 1, 1);
  check({{5, 1}, {1, 5}, {5, 1}}, 0, 2, 0);  // matched early, lost, found again
  // the mask makes the second exit propose its second best
  check({{1, 5}, {1, 5}, {5, 1}}, 2, 2, 1);
  check({{1, 2}, {2, 1}, {1, 2, 5}, {5}}, 3, 3, 2);  // and the third exit its third
  check({{5, 1}, {5, 1}, {5, 1}}, 0, 0, 0);
}

TEST_CASE(
    "readiness equals its definitions for every ranking of three tokens at up to four exits") {
  std::vector<std::vector<Token>> orders;
  std::vector<Token> tokens{0, 1, 2};
  do orders.push_back(tokens);
  while (std::next_permutation(tokens.begin(), tokens.end()));
  for (int exits = 1; exits <= 4; ++exits) {
    int total = 1;
    for (int k = 0; k < exits; ++k) total *= 6;
    for (int code = 0; code < total; ++code) {
      Ranked ranked;
      for (int k = 0, rest = code; k < exits; ++k, rest /= 6) ranked.push_back(orders[rest % 6]);
      const Readiness result = dex::readiness(ranked);
      REQUIRE(result.first == first_match(ranked));
      REQUIRE(result.stable == stable(ranked));
      REQUIRE(result.decs_branch == decs_branch(ranked));
    }
  }
}

TEST_CASE(
    "readiness equals its definitions for random rankings at eight exits, given only the tokens it "
    "asks "
    "for") {
  std::mt19937 random(7);
  std::vector<Token> order(12);
  for (int trial = 0; trial < 20000; ++trial) {
    Ranked whole, cut;
    for (std::size_t k = 0; k < 8; ++k) {
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = Token(i);
      // Later exits shuffle less, so that they agree often enough to matter.
      for (std::size_t i = 0; i < 8 - k; ++i) std::swap(order[random() % 12], order[random() % 3]);
      whole.push_back(order);
      cut.push_back(std::vector<Token>(order.begin(), order.begin() + std::ptrdiff_t(k + 1)));
    }
    const Readiness result = dex::readiness(cut);
    REQUIRE(result.first == first_match(whole));
    REQUIRE(result.stable == stable(whole));
    REQUIRE(result.decs_branch == decs_branch(whole));
  }
}

TEST_CASE("a text costs the number of explorers and the hops of its tokens but the last") {
  dex::RoundCount count(3);
  for (const int branch : {0, 2, 1})
    count.add({.decs_branch = branch}, /*last_of_text=*/branch == 1);
  count.add({.decs_branch = 2}, true);
  CHECK(count.texts() == 2);
  CHECK(count.tokens() == 4);
  CHECK(count.rounds() == (3 + 1 + 3) + 3);
}
