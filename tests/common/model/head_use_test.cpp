#include "common/model/head_use.h"

#include <catch2/catch.hpp>

#include "tests/support/errors.h"

namespace dex {

TEST_CASE("a head is shared by itself where it outweighs a quarter of an explorer's layers") {
  // 30 layers of 3.54 M weights, a head of 28.3 M
  ModelConfig small;
  small.hidden_size = 576, small.intermediate_size = 1536, small.num_layers = 30;
  small.num_heads = 9, small.num_kv_heads = 3, small.head_dim = 64;
  // 80 layers of 856 M, a head of 1051 M
  ModelConfig large;
  large.hidden_size = 8192, large.intermediate_size = 28672, large.num_layers = 80;
  large.num_heads = 64, large.num_kv_heads = 8, large.head_dim = 128;
  const auto shares = [](const ModelConfig& config, int vocab, int explorers) {
    return shares_head(HeadUse::automatic, config, vocab, explorers);
  };
  CHECK_FALSE(shares(small, 49152, 1));
  for (const int explorers : {2, 3, 8}) CHECK(shares(small, 49152, explorers));
  CHECK_FALSE(shares(small, 4096, 8));  // 2.36 M of 13.3 M
  CHECK(shares(small, 6144, 8));        // 3.54 M
  CHECK_FALSE(shares(large, 128256, 8));
  CHECK_FALSE(shares(large, 128256, 16));
  CHECK(shares(large, 128256, 20));  // 1051 M of 3424 M
  for (const ModelConfig& config : {small, large}) {
    CHECK_FALSE(shares_head(HeadUse::whole, config, 128256, 80));
    CHECK(shares_head(HeadUse::shared, config, 32, 2));
    CHECK_FALSE(shares_head(HeadUse::shared, config, 128256, 1));
  }
}

TEST_CASE("the head is used as auto, whole or shared") {
  CHECK(parse_head_use("auto") == HeadUse::automatic);
  CHECK(parse_head_use("whole") == HeadUse::whole);
  CHECK(parse_head_use("shared") == HeadUse::shared);
  test::check_refused(ExitCode::usage, {"--head is \"half\"", "auto, whole or shared"},
                      [] { parse_head_use("half"); });
}

}  // namespace dex
