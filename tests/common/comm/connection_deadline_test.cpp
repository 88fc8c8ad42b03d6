#include "common/comm/connection_deadline.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/stopwatch.h"
#include "common/comm/rendezvous.h"
#include "tests/support/port.h"
#include "tests/support/thread_faults.h"

using namespace dex;
using std::chrono::milliseconds;

namespace {

int connected_to(int port) {
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(std::uint16_t(port));
  REQUIRE(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return client;
}

}  // namespace

TEST_CASE("a wait for a server that hangs ends at the deadline, and other connections stay",
          "[timing]") {
  const test::Port hangs(/*taken=*/true), other(/*taken=*/true);
  const int there = connected_to(hangs.number()), elsewhere = connected_to(other.number());
  char byte;
  const Stopwatch watch;
  {
    const ConnectionDeadline deadline(std::uint16_t(hangs.number()), milliseconds(300));
    CHECK(recv(there, &byte, 1, 0) == 0);  // as if it had been closed
    CHECK(watch.seconds() > 0.2);
    const int again = connected_to(hangs.number());
    CHECK(recv(again, &byte, 1, 0) == 0);
    close(again);
  }
  CHECK(watch.seconds() < 12);
  CHECK(send(elsewhere, "x", 1, MSG_NOSIGNAL) == 1);
  const int later = connected_to(hangs.number());  // and no signal comes any more
  usleep(500'000);
  CHECK(send(later, "x", 1, MSG_NOSIGNAL) == 1);
  for (const int one : {there, elsewhere, later}) close(one);
}

TEST_CASE("a rank without threads does not wait for a store that hangs", "[timing]") {
  const test::Port hangs(/*taken=*/true);
  const RankEnvironment place{.rank = 1,
                              .world = 2,
                              .address = "127.0.0.1",
                              .port = std::uint16_t(hangs.number()),
                              .source = "this test"};
  const Stopwatch watch;
  test::give_threads(0);
  Rendezvous::refuse(place, ExitCode::temporary, "no thread");
  test::give_threads(-1);
  CHECK(watch.seconds() > 1);  // it tried
  CHECK(watch.seconds() < 20);
}

TEST_CASE("a rank without threads tells the others nevertheless", "[timing]") {
  RankEnvironment place{.rank = 0,
                        .world = 2,
                        .address = "127.0.0.1",
                        .port = std::uint16_t(test::Port().number()),
                        .source = "this test"};
  const auto end = Clock::now() + std::chrono::seconds(60);
  Rendezvous served(place, end);
  RankEnvironment other = place;
  other.rank = 1;
  test::give_threads(0);
  Rendezvous::refuse(other, ExitCode::temporary, "no thread");
  test::give_threads(-1);
  try {
    served.wait_for_all(end);
    FAIL("nobody was told");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::temporary);
    CHECK_THAT(error.what(), Catch::Contains("rank 1 (process ") && Catch::Contains("no thread"));
  }
}
