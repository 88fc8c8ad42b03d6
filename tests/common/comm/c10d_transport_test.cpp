// Two ranks of libtorch's process groups as threads of one process.
#include "common/comm/c10d_transport.h"

#include <catch2/catch.hpp>

#include "common/comm/gpu_link.h"
#include "tests/common/comm/two_ranks.h"
#include "tests/support/errors.h"

using namespace dex;

namespace {

bool never() { return false; }

}  // namespace

TEST_CASE("a wait for what comes another way ends when it is there") {
  test::TwoRanks ranks;
  int asked = 0;
  ranks.first->wait({1}, [&] { return ++asked == 3; });
  CHECK(asked == 3);
  Bytes message(5, std::byte{7});
  ranks.second->send(message, 0);  // what the wait has let in meanwhile is not lost
  CHECK((ranks.first->receive(1) == message));
}

TEST_CASE("a wait for what comes another way ends when the peer is gone, or silent for too long",
          "[timing]") {
  test::TwoRanks ranks;
  ranks.first->doing("step 4, hidden rows");
  ranks.first->set_deadline(0.3);
  test::check_refused(ExitCode::temporary,
                      {"rank 0, step 4, hidden rows", "rank 1 sent and took nothing for 0.3 s"},
                      [&] { ranks.first->wait({1}, never); });
  ranks.first->set_deadline(30);
  test::check_refused(
      ExitCode::temporary, {"rank 0, step 4, hidden rows", "rank 1", "no way"}, [&] {
        ranks.first->wait({1}, []() -> bool { throw std::runtime_error("no way\nstack trace"); });
      });
  ranks.second.reset();
  const auto start = std::chrono::steady_clock::now();
  test::check_refused(ExitCode::temporary, {"rank 0, step 4, hidden rows", "rank 1"},
                      [&] { ranks.first->wait({1}, never); });
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}
