#include "common/model/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "common/model/not_numbers.h"
#include "tests/support/errors.h"

namespace dex {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<ExitAnswer> answers(const std::vector<std::vector<float>>& logits, int width,
                                const std::vector<Token>& holes = {}) {
  const int rows = int(logits.size()), vocab = int(logits.front().size());
  ExitQuestion question{.width = width,
                        .asked = std::vector<std::vector<Token>>(logits.size(), {1})};
  std::vector<float> all;
  for (const auto& row : logits) {
    all.insert(all.end(), row.begin(), row.end());
    question.positions.push_back(question.rows());
  }
  ThreadPool pool(1);
  const auto sampler = greedy_sampler();
  const RowSlices whole =
      sampler->look({all.data(), rows, HeadShare::whole(vocab)}, question, pool);
  return sampler->answers({&whole, 1}, question, {vocab, holes}, pool);
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

namespace {

// Rows of logits whose owners are many, asked like exits are.
struct Shared {
  std::vector<float> logits;  // (rows, vocab)
  int vocab = 0;
  ExitQuestion question;

  int rows() const { return question.rows(); }
  float* row(int r) { return logits.data() + std::ptrdiff_t{r} * vocab; }

  // By as many owners as shares; each sees its own ids only.
  std::vector<ExitAnswer> read(int owners, std::span<const Token> holes = {}) const {
    ThreadPool pool(2);
    const auto sampler = greedy_sampler();
    std::vector<RowSlices> parts;
    for (int part = 0; part < owners; ++part) {
      const HeadShare share = HeadShare::of(part, owners, vocab);
      std::vector<float> own;
      for (int r = 0; r < rows(); ++r) {
        const auto from = logits.begin() + std::ptrdiff_t{r} * vocab + share.first_id;
        own.insert(own.end(), from, from + share.ids);
      }
      parts.push_back(sampler->look({own.data(), rows(), share}, question, pool));
    }
    return sampler->answers(parts, question, {vocab, holes}, pool);
  }
};

void check_equal(const std::vector<ExitAnswer>& want, const std::vector<ExitAnswer>& got) {
  REQUIRE(want.size() == got.size());
  const auto bits = [](const std::vector<float>& values) {
    std::vector<std::uint32_t> all;
    for (const float value : values) all.push_back(__builtin_bit_cast(std::uint32_t, value));
    return all;
  };
  for (std::size_t row = 0; row < want.size(); ++row) {
    CAPTURE(row);
    CHECK(got[row].numbers == want[row].numbers);
    CHECK(got[row].reference == want[row].reference);
    CHECK(got[row].tokens == want[row].tokens);
    CHECK(bits(got[row].probabilities) == bits(want[row].probabilities));
    CHECK(bits(got[row].asked) == bits(want[row].asked));
    CHECK(bits({got[row].gap}) == bits({want[row].gap}));
    CHECK(got[row].hash == want[row].hash);
  }
}

Shared random_rows(int rows, int vocab, int width, unsigned seed) {
  Shared shared{.vocab = vocab, .question = {.width = width}};
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, 4);
  for (int i = 0; i < rows * vocab; ++i) shared.logits.push_back(normal(engine));
  for (int r = 0; r < rows; ++r) {
    shared.question.positions.push_back(r);
    auto& asked = shared.question.asked.emplace_back();
    for (int i = 0; i < r; ++i) asked.push_back(Token(engine() % unsigned(vocab)));
  }
  return shared;
}

}  // namespace

TEST_CASE("shares are whole slices in the order of ids, as even as slices allow") {
  for (const int vocab : {1, 61, 1024, 1025, 2500, 49152, 151669})
    for (const int owners : {1, 2, 3, 4, 8, 200}) {
      CAPTURE(vocab, owners);
      int next = 0, least = vocab, most = 0;
      for (int part = 0; part < owners; ++part) {
        const HeadShare share = HeadShare::of(part, owners, vocab);
        CHECK(share.ids >= 0);
        if (share.ids > 0) {
          CHECK(share.first_id == next);
          CHECK(share.first_id % 1024 == 0);
        }
        next += share.ids;
        least = std::min(least, (share.ids + 1023) / 1024);
        most = std::max(most, (share.ids + 1023) / 1024);
      }
      CHECK(next == vocab);
      CHECK(most - least <= 1);
    }
}

TEST_CASE("owners of shares answer together, bit for bit, as one owner of all does") {
  for (const int vocab : {2, 61, 1024, 1025, 2500, 5121})
    for (const int width : {1, 2, 8, 6000}) {
      const Shared shared = random_rows(5, vocab, width, unsigned(vocab + width));
      const auto want = shared.read(1);
      // the best token and its probability by another way
      for (int r = 0; r < shared.rows(); ++r) {
        const auto row = shared.logits.begin() + std::ptrdiff_t{r} * vocab;
        const auto best = std::max_element(row, row + vocab);
        double sum = 0;
        for (int i = 0; i < vocab; ++i) sum += std::exp(double(row[i]) - *best);
        CHECK(want[std::size_t(r)].reference == best - row);
        CHECK(want[std::size_t(r)].probabilities[0] == Approx(1 / sum).epsilon(1e-5));
        CHECK(int(want[std::size_t(r)].tokens.size()) == std::min(width, vocab));
      }
      for (const int owners : {2, 3, 4, 8}) {
        CAPTURE(vocab, width, owners);
        check_equal(want, shared.read(owners));
      }
    }
}

TEST_CASE("ties between owners go to the lowest id") {
  constexpr int kVocab = 4 * 1024 + 7;
  Shared shared = random_rows(3, kVocab, 6, 1);
  std::fill_n(shared.row(0), kVocab, 0.5f);                                 // all of them
  for (const int id : {4100, 3000, 1024, 1023, 7}) shared.row(1)[id] = 50;  // one in each slice
  std::fill_n(shared.row(2), kVocab, -0.0f);
  shared.row(2)[4000] = 0.0f;  // zeros of both signs are equal
  for (const int owners : {1, 2, 3, 4, 5, 8}) {
    CAPTURE(owners);
    const auto got = shared.read(owners);
    CHECK(got[0].tokens == std::vector<Token>{0, 1, 2, 3, 4, 5});
    CHECK(got[1].tokens[0] == 7);
    CHECK(got[1].tokens[4] == 4100);
    CHECK(got[1].tokens[2] == 1024);
    CHECK(got[2].tokens == std::vector<Token>{0, 1, 2, 3, 4, 5});
    for (const ExitAnswer& answer : got) CHECK(answer.gap == 0);
    check_equal(shared.read(1), got);
  }
}

TEST_CASE("NaN with one owner marks the row for all, and no other row") {
  constexpr int kVocab = 3000;
  for (const float bad : {kNan, kInfinity})
    for (const int id : {0, 1500, kVocab - 1}) {
      Shared shared = random_rows(3, kVocab, 4, 2);
      const auto sound = shared.read(1);
      shared.row(1)[id] = bad;
      for (const int owners : {1, 2, 3, 8}) {
        const auto got = shared.read(owners);
        CHECK_FALSE(got[1].numbers);
        CHECK(got[1].tokens.empty());
        check_equal({sound[0], sound[2]}, {got[0], got[2]});
      }
    }
}

TEST_CASE("an owner may have nothing but ids without a token, or none at all") {
  constexpr int kVocab = 2 * 1024 + 5;
  Shared shared = random_rows(2, kVocab, 3000, 3);
  std::vector<Token> holes{3};
  for (Token id = 1000; id < 2049; ++id) holes.push_back(id);
  for (int r = 0; r < 2; ++r)
    for (const Token hole : holes) shared.row(r)[hole] = -kInfinity;
  shared.question.asked = {{3, 1500}, {2049, kVocab}};
  const auto want = shared.read(1, holes);
  CHECK(want[0].tokens.size() == kVocab - holes.size());
  CHECK(want[0].asked == std::vector<float>{0, 0});
  CHECK(want[1].asked[0] > 0);
  CHECK(want[1].asked[1] == 0);  // an id that the head does not have
  for (const int owners : {2, 3, 8}) check_equal(want, shared.read(owners, holes));

  std::fill(shared.logits.begin(), shared.logits.end(), -kInfinity);
  for (Token id = 0; id < kVocab; ++id)
    if (id < 3 || (id > 3 && id < 1000)) holes.push_back(id);
  std::sort(holes.begin(), holes.end());
  for (const int owners : {1, 2, 3, 8})
    for (const ExitAnswer& answer : shared.read(owners, holes)) CHECK_FALSE(answer.numbers);
}

TEST_CASE("what owners say is refused where it does not fit together") {
  const Shared shared = random_rows(2, 2500, 4, 4);
  ThreadPool pool(1);
  const auto sampler = greedy_sampler();
  const RowSlices whole =
      sampler->look({shared.logits.data(), 2, HeadShare::whole(2500)}, shared.question, pool);
  const auto refused = [&](const std::function<void(RowSlices&)>& alter) {
    RowSlices altered = whole;
    alter(altered);
    CHECK_THROWS_AS(sampler->answers({&altered, 1}, shared.question, {2500, {}}, pool), Error);
  };
  CHECK_NOTHROW(sampler->answers({&whole, 1}, shared.question, {2500, {}}, pool));
  refused([](RowSlices& s) { s.slices.pop_back(); });
  refused([](RowSlices& s) { s.keys.pop_back(); });
  refused([](RowSlices& s) { s.keys[1] = 1000; });
  refused([](RowSlices& s) { s.keys[1] = -1; });
  refused([](RowSlices& s) { s.asked.push_back(0); });
  refused([](RowSlices& s) { s.best[0] = rank_key(1, 9999); });
  refused([](RowSlices& s) {  // more of a slice than it has
    s.keys[1] = s.keys[2];
    s.best.assign(s.best.size(), s.best[0]);
  });
  refused([](RowSlices& s) { s.keys[1] = s.keys[2] - 3; });  // fewer of a row than are wanted
}

}  // namespace dex
