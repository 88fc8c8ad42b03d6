// Ranks that do not fit together, as threads of one process. The deadline is long: none of them may
// wait for it.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "common/base/stopwatch.h"
#include "common/comm/rank_group.h"
#include "tests/support/errors.h"
#include "tests/support/port.h"

using namespace dex;

namespace {

constexpr double kDeadline = 120, kSeconds = 15;  // the latter with a busy machine's slack

struct Meeting {
  std::uint16_t port = std::uint16_t(test::Port().number());
  double seconds = 0;  // until all had ended
  std::vector<std::string> errors;

  RankEnvironment place(int rank, int world) const {
    return {.rank = rank,
            .world = world,
            .local_rank = rank,
            .local_world = world,
            .address = "127.0.0.1",
            .port = port,
            .source = "this test"};
  }
  // Each in a thread; "code: message" of what it throws, or "".
  void join(
      const std::vector<RankEnvironment>& places,
      const std::function<void(std::size_t)>& before = [](std::size_t) {}) {
    const auto level = spdlog::get_level();
    const Stopwatch watch;
    errors.assign(places.size(), "");
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < places.size(); ++i)
      threads.emplace_back([&, i] {
        RankGroup group(places[i]);
        try {
          group.prepare([&] { before(i); });
          group.join(kDeadline);
          group.run([] { return 0; });
        } catch (const Error& error) {
          errors[i] = fmt::format("{}: {}", int(error.code()), error.what());
        }
      });
    for (std::thread& thread : threads) thread.join();
    seconds = watch.seconds();
    spdlog::set_level(level);
  }
  void check_all(int code, const std::vector<std::string>& words) const {
    for (const std::string& error : errors) {
      INFO(error);
      CHECK(error.rfind(std::to_string(code) + ": ", 0) == 0);
      for (const std::string& word : words) CHECK(error.find(word) != error.npos);
    }
    CHECK(seconds < kSeconds);
  }
};

std::string this_process() { return "process " + std::to_string(getpid()) + " on "; }

}  // namespace

TEST_CASE("two processes of one rank are named to all ranks at once", "[timing]") {
  Meeting meeting;
  const int twice = GENERATE(0, 1);  // 0 serves
  meeting.join({meeting.place(0, 3), meeting.place(1, 3), meeting.place(twice, 3)});
  meeting.check_all(
      2, {"joining: rank " + std::to_string(twice) + " is there twice: " + this_process(),
          ", as this test says, and " + this_process()});
}

TEST_CASE("ranks that count others are named to all ranks at once", "[timing]") {
  Meeting meeting;
  SECTION("all of the smaller number are there") {
    meeting.join({meeting.place(0, 2), meeting.place(1, 3)});
    meeting.check_all(2, {"rank 0 (" + this_process(), "one of 2, as this test says",
                          "rank 1 (" + this_process(), "one of 3, as this test says"});
  }
  SECTION("one is missing") {
    meeting.join({meeting.place(0, 4), meeting.place(2, 3)});
    meeting.check_all(2, {"one of 4", "one of 3"});
  }
  SECTION("one is past the others' last") {
    meeting.join({meeting.place(0, 3), meeting.place(3, 4)});
    meeting.check_all(2, {"one of 4", "one of 3"});
  }
}

TEST_CASE("a rank that ends before it joins ends the others with its reason", "[timing]") {
  Meeting meeting;
  const int bad = GENERATE(0, 1, 2);  // 0 serves
  meeting.join({meeting.place(0, 3), meeting.place(1, 3), meeting.place(2, 3)},
               [&](std::size_t rank) {
                 require(int(rank) != bad, ExitCode::usage, "--tau is -1, wanted more");
               });
  meeting.check_all(2, {"--tau is -1, wanted more"});
  for (int rank = 0; rank < 3; ++rank)
    if (rank != bad)
      CHECK(meeting.errors[std::size_t(rank)].find(fmt::format(
                "rank {}, joining: rank {} ({}", rank, bad, this_process())) != std::string::npos);
}

TEST_CASE("a process that does not even know its rank ends the others with its reason",
          "[timing]") {
  Meeting meeting;
  meeting.join({meeting.place(0, 3), meeting.place(1, 3), meeting.place(kUnknownRank, 1 << 20)},
               [&](std::size_t i) { require(i < 2, ExitCode::usage, "RANK is \"one\""); });
  meeting.check_all(2, {"RANK is \"one\""});
  for (const std::size_t rank : {0u, 1u})
    CHECK(meeting.errors[rank].find("joining: " + this_process()) != std::string::npos);
}

TEST_CASE("ranks that all end before they join do not wait for each other", "[timing]") {
  Meeting meeting;
  meeting.join({meeting.place(0, 2), meeting.place(1, 2)},
               [](std::size_t) { fail(ExitCode::usage, "no such option"); });
  meeting.check_all(2, {"2: no such option"});
}

TEST_CASE("a rank that comes to a run that has all its ranks is told, and the run goes on",
          "[timing]") {
  Meeting meeting;
  std::vector<std::string> late(2);
  const auto one = [&](int rank) {
    RankGroup group(meeting.place(rank, 2));
    group.join(kDeadline);
    group.run([&] {
      Transport& transport = *group.transport();
      if (rank == 0)
        for (int other = 0; other < 2; ++other) try {
            RankGroup stranger(meeting.place(other, 2));
            stranger.join(kDeadline);
          } catch (const Error& error) {
            late[std::size_t(other)] = fmt::format("{}: {}", int(error.code()), error.what());
          }
      transport.send(Bytes(1), 1 - rank);
      transport.receive(1 - rank);
      return 0;
    });
  };
  const auto level = spdlog::get_level();
  std::thread other([&] { one(1); });
  one(0);
  other.join();
  spdlog::set_level(level);
  INFO(late[0] << " | " << late[1]);
  CHECK(late[0].find("75: rank 0, joining: port " + std::to_string(meeting.port) +
                     " is in use by rank 0 of another run, " + this_process()) == 0);
  CHECK(late[1].find("75: rank 1, joining: at 127.0.0.1") == 0);
  CHECK(late[1].find(this_process()) != std::string::npos);
}
