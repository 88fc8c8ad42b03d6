#include "common/model/sampler.h"

#include <catch2/catch.hpp>
#include <limits>

#include "common/model/not_numbers.h"
#include "tests/support/errors.h"

namespace dex {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<ExitAnswer> answers(const std::vector<std::vector<float>>& logits, int width,
                                const std::vector<Token>& holes = {}) {
  std::vector<float> all;
  std::vector<std::int32_t> positions;
  for (const auto& row : logits) {
    all.insert(all.end(), row.begin(), row.end());
    positions.push_back(int(positions.size()));
  }
  ThreadPool pool(1);
  return greedy_sampler()->answers({.logits = all.data(),
                                    .rows = int(logits.size()),
                                    .vocab = int(logits.front().size()),
                                    .holes = holes,
                                    .positions = positions},
                                   width, std::vector<std::vector<Token>>(logits.size(), {1}),
                                   pool);
}

}  // namespace

TEST_CASE("a row whose logits hold NaN is answered as that, and others as without it") {
  const std::vector<float> sound{1, 3, 2, 0};
  for (const float bad : {kNan, kInfinity}) {
    const auto got = answers({sound, {1, 3, bad, 0}, sound}, 2), want = answers({sound}, 2);
    CHECK_FALSE(got[1].numbers);
    CHECK(got[1].tokens.empty());
    for (const int row : {0, 2}) {
      CHECK(got[row].numbers);
      CHECK(got[row].tokens == std::vector<Token>{1, 2});
      CHECK(got[row].probabilities == want[0].probabilities);
      CHECK(got[row].hash == want[0].hash);
    }
  }
  CHECK_NOTHROW(require_numbers(true, 4, 17));
  test::check_refused(ExitCode::io, {"the model gives no numbers", "depth 4, position 17", "NaN"},
                      [] { require_numbers(false, 4, 17); });
}

TEST_CASE("a hole is neither picked nor ranked, whatever the other logits are") {
  const std::vector<Token> holes{0, 2};
  const auto got = answers({{-kInfinity, -50, -kInfinity, 4, -kInfinity},
                            {-kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity}},
                           9, holes);
  CHECK(got[0].reference == 3);
  CHECK(got[0].tokens == std::vector<Token>{3, 1});
  CHECK(got[0].probabilities.size() == 2);
  CHECK_FALSE(got[1].numbers);  // the best would be the lowest id among equals
  CHECK(answers({{-kInfinity, -kInfinity}}, 2)[0].tokens == std::vector<Token>{0, 1});
}

}  // namespace dex
