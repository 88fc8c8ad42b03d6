#include "train/loop/schedule.h"

#include <catch2/catch.hpp>

using namespace dex;

TEST_CASE(
    "the rate rises over 6 percent of the steps, then falls in a line to just past the last") {
  const Schedule schedule{.total_steps = 100, .peak = 0.6, .warmup_share = 0.06};
  CHECK(schedule.warmup_steps() == 6);
  CHECK(schedule.rate(0) == Approx(0.1));
  CHECK(schedule.rate(5) == Approx(0.6));
  CHECK(schedule.rate(6) == Approx(0.6));
  CHECK(schedule.rate(53) == Approx(0.3));
  CHECK(schedule.rate(99) == Approx(0.6 / 94));
}

TEST_CASE("short runs and runs without warm-up have a rate in every step") {
  for (int total : {1, 2, 3, 17})
    for (double share : {0.0, 0.06, 1.0}) {
      const Schedule schedule{.total_steps = total, .peak = 1, .warmup_share = share};
      for (int step = 0; step < total; ++step) {
        CHECK(schedule.rate(step) > 0);
        CHECK(schedule.rate(step) <= 1);
      }
    }
}
