#include "decode/explorer/message.h"

#include <catch2/catch.hpp>

#include "common/base/error.h"

namespace dex {

TEST_CASE("answers and rows survive the wire") {
  const std::vector<ExitAnswer> answers{{{3, 1}, {0.5f, 0.25f}, {0.125f}, 0.75f, 42},
                                        {{}, {}, {}, 0, 0}};
  const auto back = unpack_answers(pack_answers(answers));
  REQUIRE(back.size() == 2);
  CHECK(back[0].tokens == answers[0].tokens);
  CHECK(back[0].probabilities == answers[0].probabilities);
  CHECK(back[0].asked == answers[0].asked);
  CHECK(back[0].gap == 0.75f);
  CHECK(back[0].hash == 42);
  CHECK(unpack_answers({}).empty());

  const at::Tensor h = at::arange(12, at::kFloat).reshape({4, 3});
  CHECK(at::equal(unpack_rows(pack_rows(h, {3, 1}), 3), at::stack({h[3], h[1]})));
  CHECK(unpack_rows(pack_rows(h, {}), 3).size(0) == 0);
}

TEST_CASE("a cut message is refused at every length") {
  const Bytes whole = pack_answers({{{3, 1}, {0.5f, 0.25f}, {0.125f}, 0.75f, 42}});
  for (std::size_t size = 1; size < whole.size(); ++size)
    CHECK_THROWS_AS(unpack_answers(Bytes(whole.begin(), whole.begin() + long(size))), Error);
  CHECK_THROWS_AS(unpack_rows(Bytes(5), 2), Error);
}

}  // namespace dex
