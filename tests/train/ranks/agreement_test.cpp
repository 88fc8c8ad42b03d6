#include "train/ranks/agreement.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/local_ranks.h"

using namespace dex;

namespace {

std::vector<std::string> compared(const std::vector<nlohmann::json>& asked) {
  return test::on_ranks(DepthSet({10, 20}, 30), int(asked.size()), 1, [&](RankMessages& ranks) {
    require_agreement(ranks, asked[ranks.layout().rank]);
  });
}

}  // namespace

TEST_CASE("ranks that were asked for the same agree, and all hear of those that were not") {
  const nlohmann::json one = {{"seed", 1}, {"out", "a"}}, other = {{"seed", 2}, {"out", "b"}},
                       less = {{"seed", 1}};
  CHECK(compared({one, one, one}) == std::vector<std::string>(3));
  CHECK(
      compared({one, other, one, less}) ==
      std::vector<std::string>(
          4,
          "2: rank 1 was asked for another run: out is \"b\", rank 0 has \"a\", seed is 2, rank 0 "
          "has 1; rank 3 was asked for another run: out is absent, rank 0 has \"a\""));
}

TEST_CASE("ranks that have one GPU between them are refused, and told which") {
  const auto refused = [](const std::vector<std::string>& gpus) {
    return test::on_ranks(DepthSet({10, 20}, 30), int(gpus.size()), 1, [&](RankMessages& ranks) {
      require_different(ranks, "GPU", gpus[ranks.layout().rank]);
    });
  };
  CHECK(refused({"a", "b", "c"}) == std::vector<std::string>(3));
  CHECK(
      refused({"a", "b", "a", "b"}) ==
      std::vector<std::string>(4, "2: rank 2 has the GPU of rank 0; rank 3 has the GPU of rank 1"));
}
