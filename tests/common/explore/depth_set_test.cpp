#include "common/explore/depth_set.h"

#include <catch2/catch.hpp>

#include "tests/support/errors.h"

using dex::DepthSet;
using dex::ExitCode;
using dex::test::check_refused;

TEST_CASE("the paper's example explores 5, 10, 15, 20 of 20 layers") {
  const DepthSet depths({5, 10, 15}, 20);  // Appendix A.3
  CHECK(depths.num_stages() == 4);
  CHECK(depths.ceiling(8) == 10);
  CHECK(depths.resolution() == 4);
  CHECK(depths.text() == "5,10,15,20");
}

TEST_CASE("ceiling and resolution equal their definitions for every depth set of 9 layers") {
  constexpr int kLayers = 9;
  for (int bits = 0; bits < 1 << (kLayers - 1); ++bits) {
    std::vector<int> inner, all;
    for (int d = 1; d < kLayers; ++d)
      if (bits >> (d - 1) & 1) inner.push_back(d);
    all = inner;
    all.push_back(kLayers);
    const DepthSet depths(inner, kLayers);
    REQUIRE(depths.depths() == all);
    int resolution = 0;
    for (int l = 1; l <= kLayers; ++l) {
      int ceiling = 0;
      for (int d : all)
        if (ceiling == 0 && d >= l) ceiling = d;
      REQUIRE(depths.ceiling(l) == ceiling);
      resolution = std::max(resolution, ceiling - l);
    }
    REQUIRE(depths.resolution() == resolution);
  }
}

TEST_CASE("the stages hold every layer once, in order") {
  const DepthSet depths({3, 4, 11}, 12);
  int next = 0;
  for (int stage = 0; stage < depths.num_stages(); ++stage) {
    CHECK(depths.layers(stage).first == next);
    CHECK(depths.layers(stage).last == depths.depth(stage));
    next = depths.layers(stage).last;
  }
  CHECK(next == depths.num_layers());
}

TEST_CASE("a uniform depth set differs by at most one layer between stages") {
  for (int layers : {1, 2, 7, 30, 32, 48, 64, 80})
    for (int stages = 1; stages <= std::min(layers, 9); ++stages) {
      const DepthSet depths = DepthSet::uniform(stages, layers);
      REQUIRE(depths.num_stages() == stages);
      int least = layers, most = 0;
      for (int k = 0; k < stages; ++k) {
        least = std::min(least, depths.layers(k).size());
        most = std::max(most, depths.layers(k).size());
      }
      REQUIRE(least >= 1);
      REQUIRE(most - least <= 1);
    }
  CHECK(DepthSet::uniform(3, 30).text() == "10,20,30");
  CHECK(DepthSet::uniform(8, 80).text() == "10,20,30,40,50,60,70,80");
}

TEST_CASE("depths are read from text with or without the final one") {
  CHECK(DepthSet::parse("10,20", 30).text() == "10,20,30");
  CHECK(DepthSet::parse("10,20,30", 30).text() == "10,20,30");
  CHECK(DepthSet::parse("", 30).text() == "30");
  CHECK(DepthSet::parse("30", 30).text() == "30");
  CHECK(DepthSet::parse(DepthSet::uniform(5, 17).text(), 17).depths() ==
        DepthSet::uniform(5, 17).depths());
}

TEST_CASE("depths that are no depth set are refused with the value seen") {
  const auto refuse = [](const char* text, std::vector<std::string> words) {
    CAPTURE(text);
    check_refused(ExitCode::usage, words, [&] { DepthSet::parse(text, 30); });
  };
  refuse("0,10", {"depth 0", "1..29"});
  refuse("10,10", {"depth 10 after 10"});
  refuse("20,10", {"depth 10 after 20"});
  refuse("10,31", {"depth 31", "1..29"});
  refuse("-1", {"depth -1"});
  refuse("10,30,30", {"depth 30"});
  for (const char* text : {"10,", ",10", ",", "10,,20", "ten", "10 20", "10, 20", "1e1", "0x10",
                           "99999999999", "10;20"})
    refuse(text, {text, "is not a depth"});
  check_refused(ExitCode::usage, {"4 depths", "3 layers", "1..3"}, [] { DepthSet::uniform(4, 3); });
  check_refused(ExitCode::usage, {"0 depths"}, [] { DepthSet::uniform(0, 3); });
  check_refused(ExitCode::usage, {"0 layers"}, [] { DepthSet({}, 0); });
  check_refused(ExitCode::bug, {"ceiling of depth 31"}, [] { DepthSet({10}, 30).ceiling(31); });
}
