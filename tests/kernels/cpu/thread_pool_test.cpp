#include "kernels/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "tests/support/child.h"
#include "tests/support/thread_faults.h"

namespace dex {
namespace {

// Parts that count their runs.
struct Runs {
  explicit Runs(int parts) : counts(std::size_t(parts)) {}
  void add(int part) { ++counts[part]; }
  std::vector<std::atomic<int>> counts;
};

void check_usable(ThreadPool& pool) {
  Runs runs(23);
  pool.run(23, [&](int i) { runs.add(i); });
  for (const auto& count : runs.counts) REQUIRE(count == 1);
}

TEST_CASE("pool run every part exactly once before they return") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (int round = 0; round < 2000; ++round) {
      const int parts = round % 23;
      Runs runs(parts);
      pool.run(parts, [&](int i) { runs.add(i); });
      for (const auto& count : runs.counts) REQUIRE(count == 1);
    }
  }
}

TEST_CASE(
    "what a part throws comes out of the call, whichever part and thread it was, and the pool go "
    "on") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const int parts : {1, 2, 23})
      for (int bad = 0; bad < parts; ++bad) {
        CAPTURE(threads, parts, bad);
        Runs runs(parts);
        REQUIRE_THROWS_AS(pool.run(parts,
                                   [&](int i) {
                                     runs.add(i);
                                     if (i == bad) throw std::bad_alloc();
                                   }),
                          std::bad_alloc);
        REQUIRE(runs.counts[bad] == 1);
        for (const auto& count : runs.counts) REQUIRE(count <= 1);
        check_usable(pool);
      }
  }
}

TEST_CASE(
    "of parts that all throw one is heard, when none runs any more, and none is left for the next "
    "call") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 500; ++round) {
      std::atomic<int> inside{0};
      int thrown = -1;
      try {
        pool.run(9, [&](int i) {
          ++inside;
          const struct Leave {
            std::atomic<int>& inside;
            ~Leave() { --inside; }
          } leave{inside};
          throw i;  // not only what derives from std::exception
        });
      } catch (int part) {
        thrown = part;
      }
      REQUIRE((thrown >= 0 && thrown < 9));
      REQUIRE(inside == 0);
    }
    check_usable(pool);
  }
}

TEST_CASE("a pool that cannot be had says how many threads were wanted and how many there were") {
  for (int given = 0; given < 4; ++given) {
    test::give_threads(given);
    std::string told;
    try {
      ThreadPool pool(5);
    } catch (const std::system_error& error) {
      told = error.what();
    }
    test::give_threads(-1);
    INFO(told);
    CHECK(told.find("a pool of 5 threads, of which " + std::to_string(given + 1) +
                    " could be had: Resource temporarily unavailable") == 0);
  }
  ThreadPool pool(5);
  check_usable(pool);
}

// The stacks of threads are made so large that the third finds no room under the limit.
TEST_CASE("pool that cannot be had are an error, and those begun are ended") {
#if defined(__SANITIZE_ADDRESS__)
  WARN("SKIPPED: the address sanitizer's memory cannot be limited");
#else
  const int code = test::code_in_child([] {
    constexpr std::size_t kStack = std::size_t{1} << 30;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, kStack) || pthread_setattr_default_np(&attributes))
      return 1;
    test::limit_memory(5 * kStack / 2);
    // stacks of threads that were not joined would be missed
    for (int attempt = 0; attempt < 3; ++attempt) {
      ThreadPool two(3);
      check_usable(two);
    }
    try {
      ThreadPool many(5);
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::resource_unavailable_try_again) return 2;
      ThreadPool two(3);
      check_usable(two);
      return 0;
    }
    return 3;
  });
  CHECK(code == 0);
#endif
}

}  // namespace
}  // namespace dex
