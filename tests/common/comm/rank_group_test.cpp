// Two ranks of a group as threads of one process.
#include "common/comm/rank_group.h"

#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <thread>

#include "common/base/log.h"
#include "tests/support/errors.h"
#include "tests/support/port.h"

using namespace dex;

namespace {

// What both ranks throw: "code: message" of an Error, else the message, or "".
std::vector<std::string> errors_of(const std::function<int(RankGroup&)>& work) {
  const auto level = spdlog::get_level();
  const auto port = std::uint16_t(test::Port().number());
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      RankGroup group({.rank = rank,
                       .world = 2,
                       .local_rank = rank,
                       .local_world = 2,
                       .address = "127.0.0.1",
                       .port = port});
      try {
        group.join(30);
        group.run([&] { return work(group); });
      } catch (const Error& error) {
        errors[rank] = fmt::format("{}: {}", int(error.code()), error.what());
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  spdlog::set_level(level);
  return errors;
}

}  // namespace

TEST_CASE("a rank alone joins nobody and returns what its work returns") {
  RankGroup group(RankEnvironment{});
  group.join(1);
  group.set_deadline(1);
  CHECK(group.alone());
  CHECK(group.transport() == nullptr);
  CHECK(group.run([] { return 7; }) == 7);
  test::check_refused(ExitCode::io, {"no disk"},
                      [&] { group.run([]() -> int { fail(ExitCode::io, "no disk"); }); });
}

TEST_CASE("ranks of a group leave when all are done, with messages that nobody took") {
  CHECK(errors_of([](RankGroup& group) {
          Transport& transport = *group.transport();
          const int other = 1 - transport.rank();
          transport.send(Bytes(3, std::byte{7}), other);
          require(transport.receive(other) == Bytes(3, std::byte{7}), ExitCode::bug, "other bytes");
          transport.send(Bytes(5), other);
          return 0;
        }) == std::vector<std::string>(2));
}

TEST_CASE("what one rank of a group throws ends the other with its code") {
  const int failing = GENERATE(0, 1);
  const bool ours = GENERATE(true, false);
  const auto errors = errors_of([&](RankGroup& group) {
    const int rank = group.environment().rank;
    if (rank == failing && ours) fail(ExitCode::io, "no disk");
    if (rank == failing) throw std::out_of_range("no such index");
    group.transport()->receive(failing);
    return 0;
  });
  INFO(errors[0] << " | " << errors[1]);
  CHECK(errors[failing] == (ours ? "74: no disk" : "no such index"));
  const std::string& told = errors[1 - failing];
  CHECK(told.find(ours ? "74: " : "1: ") == 0);
  CHECK(told.find(ours ? "no disk" : "no such index") != std::string::npos);
}
