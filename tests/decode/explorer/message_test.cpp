#include "decode/explorer/message.h"

#include <catch2/catch.hpp>

#include "common/base/error.h"

namespace dex {

namespace {

Post some_post() {
  return {.answers = {{7, {3, 1}, {0.5f, 0.25f}, {0.125f}, 0.75f, 42}, {.numbers = false}},
          .slices = {{{{1.5f, 2.5f, 17}, {-1, 3, 18}}, {0, 2}, {RankKey{9}, RankKey{4}}, {0.5f}},
                     {.asked = {0.25f, 0.75f}}},
          .events = {{.kind = Event::Kind::submit,
                      .sequence = 5,
                      .prompt = {9, 8},
                      .limits = {.max_tokens = 3, .ignore_stop = true}},
                     {.kind = Event::Kind::stop}}};
}

}  // namespace

TEST_CASE("posts and rows survive the wire") {
  const Post post = some_post(), back = unpack_post(pack_post(post));
  REQUIRE(back.answers.size() == 2);
  CHECK(back.answers[0].reference == 7);
  CHECK(back.answers[0].tokens == post.answers[0].tokens);
  CHECK(back.answers[0].probabilities == post.answers[0].probabilities);
  CHECK(back.answers[0].asked == post.answers[0].asked);
  CHECK(back.answers[0].gap == 0.75f);
  CHECK(back.answers[0].hash == 42);
  CHECK(back.answers[0].numbers);
  CHECK(back.answers[1].tokens.empty());
  CHECK_FALSE(back.answers[1].numbers);
  REQUIRE(back.slices.size() == 2);
  REQUIRE(back.slices[0].slices.size() == 2);
  CHECK(back.slices[0].slices[0].largest == 1.5f);
  CHECK(back.slices[0].slices[1].sum == 3);
  CHECK(back.slices[0].slices[1].hash == 18);
  CHECK(back.slices[0].keys == post.slices[0].keys);
  CHECK(back.slices[0].best == post.slices[0].best);
  CHECK(back.slices[0].asked == post.slices[0].asked);
  CHECK(back.slices[1].slices.empty());
  CHECK(back.slices[1].keys == std::vector<std::int32_t>{0});
  CHECK(back.slices[1].asked == post.slices[1].asked);
  REQUIRE(back.events.size() == 2);
  CHECK(back.events[0].kind == Event::Kind::submit);
  CHECK(back.events[0].sequence == 5);
  CHECK(back.events[0].prompt == std::vector<Token>{9, 8});
  CHECK(back.events[0].limits.max_tokens == 3);
  CHECK(back.events[0].limits.ignore_stop);
  CHECK(back.events[1].kind == Event::Kind::stop);
  CHECK(unpack_post(pack_post({})).answers.empty());
  CHECK(unpack_post(pack_post({})).slices.empty());

  const at::Tensor h = at::arange(12, at::kFloat).reshape({4, 3});
  CHECK(at::equal(unpack_rows(pack_rows(h, std::vector{3, 1}), 3), at::stack({h[3], h[1]})));
  CHECK(unpack_rows(pack_rows(h, {}), 3).size(0) == 0);
}

TEST_CASE("a message that is cut inside an answer, slices or an event is refused") {
  const Post answers{.answers = some_post().answers}, slices{.slices = some_post().slices},
      event{.events = {some_post().events.front()}};
  for (const Post& post : {answers, slices, event}) {
    const Bytes whole = pack_post(post);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      // whole: says nothing
      if (!post.events.empty() && size == pack_post({}).size()) continue;
      CAPTURE(size);
      CHECK_THROWS_AS(unpack_post(Bytes(whole.begin(), whole.begin() + long(size))), Error);
    }
  }
  CHECK_THROWS_AS(unpack_rows(Bytes(5), 2), Error);
}

}  // namespace dex
