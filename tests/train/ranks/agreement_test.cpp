#include "train/ranks/agreement.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/rank_threads.h"

using namespace dex;
using nlohmann::json;

namespace {

using Errors = std::vector<std::optional<Error>>;

Errors errors_of_agree(const std::vector<json>& by_rank) {
  return test::on_every_rank({.world = int(by_rank.size())}, [&](RankMessages& ranks) {
    require_agreement(ranks, by_rank[ranks.layout().rank]);
  });
}

Errors errors_of_different(const std::vector<std::string>& by_rank) {
  return test::on_every_rank({.world = int(by_rank.size())}, [&](RankMessages& ranks) {
    require_different(ranks, "device", by_rank[ranks.layout().rank]);
  });
}

void check_none(const Errors& errors) {
  for (const auto& error : errors) {
    INFO((error ? error->what() : ""));
    CHECK_FALSE(error);
  }
}

// The others do not hear of it from one that failed: each throws it itself.
void check_all(const Errors& errors, const std::string& message) {
  for (const auto& error : errors) {
    REQUIRE(error);
    CHECK(error->code() == ExitCode::usage);
    CHECK(error->what() == message);
  }
}

}  // namespace

TEST_CASE("ranks that were asked for the same run go on") {
  const json run{{"seed", 7}, {"depths", {1, 3}}, {"init", "paper"}};
  for (int world : {1, 2, 4}) check_none(errors_of_agree(std::vector<json>(world, run)));
}

TEST_CASE("ranks put together what each knows, and all have the same then") {
  using Map = std::map<std::string, std::string>;
  const std::vector<std::vector<Map>> worlds{
      {{{"a", "1"}}},
      {{{"a", "1"}, {"b", "2"}}, {{"b", "2"}, {"c", "3"}}},
      {{}, {{"c", "3"}}, {{"a", "1"}}, {{"b", "2"}, {"c", "3"}}}};
  for (const auto& by_rank : worlds) {
    Map wanted;
    for (const Map& one : by_rank) wanted.insert(one.begin(), one.end());
    std::vector<Map> seen(by_rank.size());
    check_none(test::on_every_rank({.world = int(by_rank.size())}, [&](RankMessages& ranks) {
      const int rank = ranks.layout().rank;
      seen[rank] = agreed_union(ranks, "SHA-256", by_rank[rank]);
    }));
    for (const Map& one : seen) CHECK(one == wanted);
  }
}

TEST_CASE("all ranks name the key that two ranks have otherwise") {
  using Map = std::map<std::string, std::string>;
  const std::vector<Map> by_rank{{{"a", "1"}}, {{"b", "2"}}, {{"a", "1"}, {"b", "3"}}};
  check_all(test::on_every_rank({.world = 3},
                                [&](RankMessages& ranks) {
                                  agreed_union(ranks, "SHA-256", by_rank[ranks.layout().rank]);
                                }),
            "rank 2 has SHA-256 3 for b, ranks before it 2");
}

TEST_CASE("all ranks name the rank and the key that differ, with both values") {
  check_all(errors_of_agree({{{"rate", 1}, {"seed", 7}}, {{"rate", 1}, {"seed", 8}}}),
            "rank 1 was asked for another run: seed is 8, rank 0 has 7");
  check_all(errors_of_agree({{{"init", "paper"}}, {{"init", "paper"}}, {{"init", "ridge"}}}),
            "rank 2 was asked for another run: init is \"ridge\", rank 0 has \"paper\"");
  check_all(errors_of_agree({{{"rate", 1}, {"seed", 7}}, {{"rate", 1}}}),
            "rank 1 was asked for another run: seed is absent, rank 0 has 7");
}

TEST_CASE("a key that rank 0 alone lacks is a difference, too") {
  check_all(errors_of_agree({{{"rate", 1}}, {{"rate", 1}, {"seed", 8}}}),
            "rank 1 was asked for another run: seed is 8, rank 0 has absent");
}

TEST_CASE("all keys of all ranks that differ are named in one message") {
  check_all(errors_of_agree({{{"a", 1}, {"b", 2}, {"c", 3}},
                             {{"a", 0}, {"b", 2}, {"c", 4}},
                             {{"a", 1}, {"b", 2}, {"c", 3}},
                             {{"a", 1}, {"b", false}, {"c", 3}}}),
            "rank 1 was asked for another run: a is 0, rank 0 has 1, c is 4, rank 0 has 3; "
            "rank 3 was asked for another run: b is false, rank 0 has 2");
}

TEST_CASE("ranks that each have a text of their own go on") {
  check_none(errors_of_different({"one"}));
  check_none(errors_of_different({"one", "two", "three", ""}));
}

TEST_CASE("all ranks name the two that have the same text") {
  check_all(errors_of_different({"one", "two", "three", "two"}), "rank 3 has the device of rank 1");
  check_all(errors_of_different({"one", "one"}), "rank 1 has the device of rank 0");
  check_all(errors_of_different({"one", "two", "one", "two", "one"}),
            "rank 2 has the device of rank 0; rank 3 has the device of rank 1; "
            "rank 4 has the device of rank 0");
}
