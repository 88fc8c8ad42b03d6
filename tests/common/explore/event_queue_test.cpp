#include "common/explore/event_queue.h"

#include <catch2/catch.hpp>
#include <thread>

namespace dex {

TEST_CASE("events come out once, in the order they were added, and waiting ends with one") {
  EventQueue events;
  CHECK(events.take().empty());
  events.add({.kind = Event::Kind::submit, .sequence = 1, .prompt = {4, 5}});
  events.add({.kind = Event::Kind::cancel, .sequence = 1});
  const auto taken = events.take();
  REQUIRE(taken.size() == 2);
  CHECK(taken[0].kind == Event::Kind::submit);
  CHECK(taken[0].prompt == std::vector<Token>{4, 5});
  CHECK(taken[1].kind == Event::Kind::cancel);
  CHECK(events.take().empty());

  std::jthread later([&] { events.add({.kind = Event::Kind::stop}); });
  CHECK(events.wait().front().kind == Event::Kind::stop);
}

}  // namespace dex
