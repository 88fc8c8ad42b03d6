#include "common/comm/messages.h"

#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "tests/support/errors.h"

using namespace dex;

namespace {

Bytes bytes(int value) { return Bytes(3, std::byte(value)); }

// Keeps what it is told and hands back what was sent.
struct Loop final : Transport {
  std::string told;
  std::deque<Bytes> sent;

  int rank() const override { return 0; }
  int size() const override { return 1; }
  void send(Bytes message, int) override { sent.push_back(std::move(message)); }
  Bytes receive(int) override {
    Bytes message = std::move(sent.front());
    sent.pop_front();
    return message;
  }
  void abort(const std::string&, ExitCode) noexcept override {}
  void doing(const std::string& what) override { told = what; }
};

}  // namespace

TEST_CASE("messages of other tags wait, and those of one tag keep their order") {
  Loop loop;
  Messages messages(loop);
  messages.send(Tag::rows, bytes(1), 0);
  messages.send(Tag::answers, bytes(2), 0);
  messages.send(Tag::rows, {}, 0);
  messages.send(Tag::answers, bytes(4), 0);
  CHECK((messages.receive(Tag::answers, 0) == bytes(2)));
  CHECK((messages.receive(Tag::answers, 0) == bytes(4)));
  CHECK((messages.receive(Tag::rows, 0) == bytes(1)));
  CHECK(messages.receive(Tag::rows, 0).empty());
}

TEST_CASE("the transport is told what is under way, in sending and in receiving") {
  Loop loop;
  Messages messages(loop);
  messages.during("round 7");
  messages.send(Tag::rows, bytes(1), 0);
  CHECK(loop.told == "round 7, hidden rows");
  messages.send(Tag::answers, bytes(1), 0);
  messages.receive(Tag::rows, 0);
  CHECK(loop.told == "round 7, hidden rows");
  messages.receive(Tag::answers, 0);
  CHECK(loop.told == "round 7, answers of exits");
}

TEST_CASE("a message without a tag is a bug that names its sender") {
  Loop loop;
  Messages messages(loop);
  loop.send({}, 0);
  test::check_refused(ExitCode::bug, {"without a tag", "rank 0"},
                      [&] { messages.receive(Tag::rows, 0); });
}

TEST_CASE("tags have names of their own") {
  std::set<std::string> names;
  for (int tag = 0; tag <= int(Tag::alive); ++tag) names.insert(name_of(Tag(tag)));
  CHECK(names.size() == std::size_t(Tag::alive) + 1);
  CHECK_FALSE(names.contains("unknown"));
}

TEST_CASE("gathers of explorers never mix with the rows between them") {
  constexpr int kRanks = 4, kRounds = 300;
  auto transports = local_transports(kRanks);
  std::vector<int> wrong(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      Messages messages(*transports[r]);
      for (int round = 0; round < kRounds; ++round) {
        messages.send(Tag::rows, bytes(round % 200), (r + 1) % kRanks);
        const auto all = messages.all_gather(Tag::answers, bytes((round + r) % 200));
        for (int from = 0; from < kRanks; ++from)
          wrong[r] += all[from] != bytes((round + from) % 200);
        wrong[r] += messages.receive(Tag::rows, (r + kRanks - 1) % kRanks) != bytes(round % 200);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(kRanks));
}
