#include "train/ranks/rank_messages.h"

#include <catch2/catch.hpp>

#include "tests/support/errors.h"
#include "tests/support/rank_threads.h"

using namespace dex;

namespace {

const DepthSet kDepths({10, 20}, 30);

// Runs on so many pipeline ranks; none may fail.
void on_all(int ranks, const std::function<void(RankMessages&)>& work) {
  for (const auto& error : test::on_every_rank(rank_layout(kDepths, ranks, 0, ranks), work)) {
    INFO((error ? error->what() : ""));
    CHECK_FALSE(error);
  }
}

}  // namespace

TEST_CASE("tensors arrive with their shape and type, and tags do not wait for each other") {
  const at::Tensor rows = at::arange(6, at::kFloat).view({2, 3}), counts = at::arange(4, at::kLong),
                   later = rows + 10;
  bool right = false;
  on_all(2, [&](RankMessages& ranks) {
    if (ranks.last()) {
      ranks.send(Tag::rows, rows.t(), 0);  // not contiguous
      ranks.send(Tag::rows, later, 0);
      ranks.send(Tag::counts, counts, 0);
      ranks.send(Tag::state, at::empty({0, 3}), 0);
      return;
    }
    right = ranks.receive(Tag::state, 1, {0, 3}).numel() == 0 &&
            ranks.receive(Tag::counts, 1, {4}, at::kLong).equal(counts) &&
            ranks.receive(Tag::rows, 1, {3, 2}).equal(rows.t()) &&
            ranks.receive(Tag::rows, 1, {2, 3}).equal(later);
  });
  CHECK(right);
}

TEST_CASE("a tensor of another size than asked for is a bug, told with both sizes") {
  const auto errors = test::on_every_rank(rank_layout(kDepths, 2, 0, 2), [](RankMessages& ranks) {
    if (ranks.last())
      ranks.send(Tag::report, at::zeros({3}), 0);
    else
      ranks.receive(Tag::report, 1, {4}, at::kDouble);
  });
  REQUIRE(errors[0]);
  CHECK(errors[0]->code() == ExitCode::bug);
  CHECK(errors[0]->what() == std::string("report of a step from rank 1: 12 bytes, wanted 32"));
  CHECK_FALSE(errors[1]);
}

TEST_CASE("all ranks have the leading rank's text") {
  std::vector<std::string> seen(3);
  on_all(3, [&](RankMessages& ranks) {
    ranks.keep_alive();
    const std::string mine = ranks.leads() ? "step-4" : "not asked";
    seen[ranks.layout().rank] = ranks.from_leader(Tag::agreement, mine);
  });
  CHECK(seen == std::vector<std::string>(3, "step-4"));
}

TEST_CASE("a rank alone has its own text, and nobody to send to") {
  RankMessages ranks(rank_layout(kDepths, 1, 0));
  CHECK(ranks.from_leader(Tag::agreement, "mine") == "mine");
  ranks.at(3);
  test::check_refused(ExitCode::bug, {"one rank has nobody", "hidden rows"},
                      [&] { ranks.send(Tag::rows, at::zeros({1}), 1); });
}
