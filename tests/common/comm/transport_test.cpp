#include "common/comm/transport.h"

#include <catch2/catch.hpp>
#include <thread>

#include "common/base/error.h"
#include "common/comm/messages.h"

namespace dex {
namespace {
Bytes bytes(int value) { return Bytes(3, static_cast<std::byte>(value)); }
}  // namespace

TEST_CASE("messages arrive in order and gathers never mix") {
  constexpr int kRanks = 4, kTurns = 500;
  auto ranks = local_transports(kRanks);
  std::vector<int> wrong(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      Messages t(*ranks[r]);
      for (int turn = 0; turn < kTurns; ++turn) {
        t.send(Tag::rows, bytes(turn % 200), (r + 1) % kRanks);
        wrong[r] += t.receive(Tag::rows, (r + kRanks - 1) % kRanks) != bytes(turn % 200);
        const auto all = t.all_gather(Tag::post, bytes((turn + r) % 200));
        for (int from = 0; from < kRanks; ++from)
          wrong[r] += all[from] != bytes((turn + from) % 200);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(kRanks));
}

TEST_CASE("an abort wakes waiting peers with its reason") {
  auto ranks = local_transports(3);
  std::string received, gathered;
  std::thread one([&] {
    try {
      ranks[1]->receive(0);
    } catch (const Error& e) {
      received = e.what();
    }
  });
  std::thread two([&] {
    try {
      Messages(*ranks[2]).all_gather(Tag::post, {});
    } catch (const Error& e) {
      gathered = e.what();
    }
  });
  ranks[0]->abort("disk on fire");
  one.join();
  two.join();
  CHECK_THAT(received, Catch::Contains("disk on fire"));
  CHECK_THAT(gathered, Catch::Contains("disk on fire"));
}

}  // namespace dex
