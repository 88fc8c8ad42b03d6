#include "data/task_queue.h"

#include <catch2/catch.hpp>

#include "tests/support/errors.h"
#include "tests/support/thread_faults.h"

using namespace dex;

TEST_CASE("a queue whose threads cannot all be had is an error that says which, and ends those") {
  for (int given = 0; given < 4; ++given) {
    test::give_threads(given);
    const auto error = test::error_of([] { TaskQueue queue(4); });
    test::give_threads(-1);
    REQUIRE(error);
    INFO(error->what());
    CHECK(error->code() == ExitCode::temporary);
    CHECK(std::string(error->what()).find("tasks, " + std::to_string(given + 1) + " of 4") !=
          std::string::npos);
  }
  TaskQueue queue(4);
  CHECK(queue.submit([] { return 7; }).get() == 7);
}
