#include "common/explore/lookup_proposer.h"

#include <catch2/catch.hpp>

#include "common/explore/match_confidence.h"
#include "tests/support/slow_explorers.h"

namespace dex {
namespace {

using test::plain_text;
using test::SlowExplorers;
using test::ToyExits;

std::vector<Token> ids(const std::vector<CommittedToken>& tokens) {
  std::vector<Token> ids;
  for (const auto& t : tokens) ids.push_back(t.token);
  return ids;
}

LatticePolicy worth_it(double row_seconds, int rows = 16) {
  return {.rows = rows,
          .width = 3,
          .costs = std::make_shared<const RowCosts>(
              std::vector<RowCosts::Point>{{1, 1.0}, {2, 1.0 + row_seconds}})};
}

}  // namespace

TEST_CASE("drafts from the text change rounds and no token, whatever the text") {
  for (const int K : {1, 2, 3, 4})
    for (const int sees : {1, 2, 1 << 30})
      for (const int vocab : {2, 7, 40}) {
        ToyExits exits(K, vocab, 11);
        exits.sees = sees;
        const std::vector<Token> prompt{1, 0, 1, 1};
        const auto want = plain_text(exits, K, prompt, 60);
        for (const LatticePolicy& policy :
             {LatticePolicy{.rows = 1}, LatticePolicy{.rows = 8, .width = 3}, worth_it(0.1)}) {
          CAPTURE(K, sees, vocab, policy.rows);
          SlowExplorers drafted(exits, K, policy, prompt, 60);
          const auto drafts = lookup_proposer(4, policy.rows);
          drafted.drafts = drafts.get();
          CHECK(ids(drafted.run()) == want);
          CHECK(drafted.peak_wave <= policy.rows);
        }
      }
}

TEST_CASE("where a text repeats, a round commits as many tokens as a block has, and one more") {
  ToyExits exits(1, 5, 3);
  exits.sees = 1;  // at most five tokens, then the same again
  const std::vector<Token> prompt{1, 0};
  for (const int length : {1, 2, 4, 8}) {
    SlowExplorers drafted(exits, 1, {.rows = 16}, prompt, 400);
    const auto drafts = lookup_proposer(length, 15);
    drafted.drafts = drafts.get();
    const auto tokens = drafted.run();
    const double per_round = 400.0 / tokens.back().round;
    CAPTURE(length);
    CHECK(per_round <= length + 1);
    CHECK(per_round > 0.9 * (length + 1));
  }
}

TEST_CASE("rows enter while they are worth their time: none where they are dear, all where free") {
  ToyExits repeats(1, 5, 3), never(1, 400, 3);
  repeats.sees = 1;
  const auto rows_per_round = [](const ToyExits& exits, double row_seconds) {
    SlowExplorers run(exits, 1, worth_it(row_seconds), {1, 0}, 300);
    const auto drafts = lookup_proposer(8, 15);
    run.drafts = drafts.get();
    const auto tokens = run.run();
    return std::pair(run.peak_wave, double(tokens.size()) / tokens.back().round);
  };
  const auto [dear, slow] = rows_per_round(repeats, 2);  // a row more costs two rounds
  CHECK(dear == 1);
  CHECK(slow == 1);
  const auto [cheap, fast] = rows_per_round(repeats, 0.02);
  CHECK(cheap > 4);
  CHECK(fast > 5);
  CHECK(rows_per_round(never, 0.5).first == 1);  // the text soon shows that drafts are wrong
}

TEST_CASE("a match is believed as far as the text has borne it out") {
  MatchConfidence confidence;
  for (int length = 2; length <= NgramIndex::kLongest; ++length)
    CHECK(confidence.of(length) > confidence.of(length - 1));
  const double before = confidence.of(3);
  for (int i = 0; i < 100; ++i) confidence.count(3, false);
  CHECK(confidence.of(3) < 0.1);
  CHECK(confidence.of(2) == Approx(0.51));
  for (int i = 0; i < 1000; ++i) confidence.count(3, true);
  CHECK(confidence.of(3) > before);
}

}  // namespace dex
