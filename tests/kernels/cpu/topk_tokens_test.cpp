#include "kernels/topk_tokens.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <memory>
#include <numeric>
#include <set>

#include "tests/kernels/support.h"

namespace dex {
namespace {

using test::bits_of;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Ranked {
  std::vector<std::int32_t> tokens;
  std::vector<float> probabilities, asked, gaps;
  std::vector<std::uint64_t> hashes;
  std::vector<bool> has_nan;
};

// Each owner of the ids between two cuts has its own rows of logits and leaves its own partial
// results, which follow each other.
void by_owners(const TopkTokens& p, const std::vector<int>& cuts, ThreadPool& pool) {
  const int kept = kept_of_slice(p.width);
  std::vector<VocabSlice> slices;
  std::vector<RankKey> best;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const int ids = cuts[i + 1] - cuts[i];
    std::vector<float> own;
    for (int row = 0; row < p.rows; ++row) {
      const float* from = p.logits + std::ptrdiff_t{row} * p.vocab + cuts[i];
      own.insert(own.end(), from, from + ids);
    }
    std::vector<VocabSlice> own_slices(std::size_t(vocab_slices(ids) * p.rows));
    std::vector<RankKey> own_best(own_slices.size() * std::size_t(kept), 7);
    cpu::topk_slices({.logits = own.data(),
                      .rows = p.rows,
                      .ids = ids,
                      .first_id = cuts[i],
                      .width = p.width,
                      .asked = p.asked,
                      .asked_begin = p.asked_begin,
                      .asked_logits = p.asked_probabilities,
                      .slices = own_slices.data(),
                      .best = own_best.data()},
                     pool);
    slices.insert(slices.end(), own_slices.begin(), own_slices.end());
    best.insert(best.end(), own_best.begin(), own_best.end());
  }
  cpu::topk_combine({.wanted = p, .slices = slices.data(), .best = best.data()}, pool);
}

// Asks every row for the probability of every id; by owners where there are cuts.
Ranked rank(const std::vector<float>& logits, int vocab, int width, int threads = 1,
            const std::vector<int>& cuts = {}) {
  const int rows = int(logits.size()) / vocab;
  Ranked r;
  r.tokens.resize(std::size_t(rows) * width, -1);
  r.probabilities.resize(std::size_t(rows) * width);
  r.asked.resize(logits.size());
  r.gaps.resize(rows);
  r.hashes.resize(rows);
  const auto nan = std::make_unique<bool[]>(rows + 1);
  std::vector<std::int32_t> asked(logits.size()), begin(rows + 1);
  for (std::size_t i = 0; i < asked.size(); ++i) asked[i] = std::int32_t(i) % vocab;
  for (int i = 0; i <= rows; ++i) begin[i] = i * vocab;
  ThreadPool pool(threads);
  const TopkTokens p{
      logits.data(),          rows,         vocab,        width,          r.tokens.data(),
      r.probabilities.data(), asked.data(), begin.data(), r.asked.data(), r.gaps.data(),
      r.hashes.data(),        nan.get()};
  if (cuts.empty())
    cpu::topk_tokens(p, pool);
  else
    by_owners(p, cuts, pool);
  r.has_nan.assign(nan.get(), nan.get() + rows);
  return r;
}

void check_row(const float* logits, int vocab, int width, const Ranked& r, int row) {
  const std::vector<float> all(logits, logits + vocab);
  const auto order = test::ranked(all);
  const auto softmax = test::softmax(all);
  for (int t = 0; t < vocab; ++t) {
    const double want = softmax[t];
    REQUIRE(std::abs(r.asked[std::size_t(row) * vocab + t] - want) <=
            3 * test::tolerance(Dtype::f32) * want);
  }
  for (int i = 0; i < width; ++i) {
    REQUIRE(r.tokens[row * width + i] == order[i]);
    REQUIRE(bits_of(&r.probabilities[row * width + i], 1) ==
            bits_of(&r.asked[std::size_t(row) * vocab + order[i]], 1));
  }
  if (vocab > 1) REQUIRE(r.gaps[row] == logits[order[0]] - logits[order[1]]);
  REQUIRE(r.hashes[row] == test::logit_hash(all));
  REQUIRE_FALSE(r.has_nan[row]);
}

TEST_CASE("topk_tokens agrees with a stable sort, a float64 softmax and a plain loop's hash") {
  test::on_every_target([] {
    for (const int vocab : {1, 2, 7, 16, 100, 1001, 1024, 1025, 2500, 18001})
      for (const int width : {1, 2, 8, 1030, vocab}) {
        if (width > vocab || width > 2500) continue;
        const auto logits = test::random_floats(std::size_t(3) * vocab, 1, 4);
        const auto r = rank(logits, vocab, width);
        CAPTURE(vocab, width);
        for (int row = 0; row < 3; ++row)
          check_row(logits.data() + std::size_t(row) * vocab, vocab, width, r, row);
      }
  });
}

TEST_CASE("equal logits rank by the lowest id, zeros of both signs among them") {
  test::on_every_target([] {
    std::vector<float> logits(100, -1);
    for (const int t : {93, 40, 17, 41}) logits[t] = t % 2 ? 0.0f : -0.0f;
    CHECK(rank(logits, 100, 6).tokens == std::vector<std::int32_t>{17, 40, 41, 93, 0, 1});
    CHECK(rank(logits, 100, 1).gaps[0] == 0);
    CHECK(rank(std::vector<float>(100, 2.5f), 100, 3).tokens == std::vector<std::int32_t>{0, 1, 2});
  });
}

TEST_CASE("a logit of minus infinity has probability 0 and still ranks") {
  test::on_every_target([] {
    std::vector<float> logits(50, -kInfinity);
    logits[30] = 1, logits[20] = 0;
    const auto r = rank(logits, 50, 4);
    CHECK(r.tokens == std::vector<std::int32_t>{30, 20, 0, 1});
    CHECK(r.probabilities[2] == 0);
    CHECK(r.probabilities[0] + r.probabilities[1] == Approx(1));
    CHECK_FALSE(r.has_nan[0]);
    logits[20] = -kInfinity;
    CHECK(rank(logits, 50, 1).gaps[0] == kInfinity);
    CHECK(rank(logits, 50, 1).probabilities[0] == 1);
  });
}

TEST_CASE("NaN is told for its own row") {
  test::on_every_target([] {
    for (const int at : {0, 15, 36}) {
      auto logits = test::random_floats(3 * 37, 2);
      const auto before = rank(logits, 37, 5);
      logits[37 + at] = std::bit_cast<float>(at == 15 ? 0xffffffffu : 0x7fc00000u);
      const auto after = rank(logits, 37, 5);
      CHECK(after.has_nan == std::vector<bool>{false, true, false});
      CHECK(after.hashes[0] == before.hashes[0]);
      CHECK(after.hashes[1] != before.hashes[1]);
    }
  });
}

TEST_CASE("a row ranks with the same bits alone, among others and on any number of threads") {
  test::on_every_target([] {
    const int vocab = 17003, rows = 9;
    const auto logits = test::random_floats(std::size_t(rows) * vocab, 3, 3);
    const auto all = rank(logits, vocab, 8);
    for (const int threads : {2, 3}) {
      const auto same = rank(logits, vocab, 8, threads);
      CHECK(same.tokens == all.tokens);
      CHECK(bits_of(same.asked) == bits_of(all.asked));
      CHECK(same.hashes == all.hashes);
    }
    for (int row = 0; row < rows; ++row) {
      const auto alone =
          rank({logits.begin() + row * vocab, logits.begin() + (row + 1) * vocab}, vocab, 8);
      CHECK(alone.hashes[0] == all.hashes[row]);
      CHECK(bits_of(alone.asked) == bits_of(all.asked.data() + std::size_t(row) * vocab, vocab));
    }
  });
}

TEST_CASE("the hash sees every bit of every logit and their order") {
  auto logits = test::random_floats(101, 4);
  std::set<std::uint64_t> seen = {rank(logits, 101, 1).hashes[0]};
  for (int t = 0; t < 101; ++t)
    for (int bit = 0; bit < 32; ++bit) {
      auto changed = logits;
      changed[t] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(logits[t]) ^ (1u << bit));
      seen.insert(rank(changed, 101, 1).hashes[0]);
    }
  CHECK(seen.size() == 1 + 101 * 32);
}

TEST_CASE("the hash sees two logits that change together") {
  const auto logits = test::random_floats(101, 4);
  const std::uint64_t plain = rank(logits, 101, 1).hashes[0];
  int same = 0;
  for (int a = 0; a < 101; ++a)
    for (int b = 0; b < a; ++b) {
      auto swapped = logits, opposed = logits;
      std::swap(swapped[a], swapped[b]);
      opposed[a] = std::nextafter(logits[a], kInfinity);
      opposed[b] = std::nextafter(logits[b], -kInfinity);
      for (const auto& changed : {swapped, opposed})
        same += rank(changed, 101, 1).hashes[0] == plain;
    }
  CHECK(same == 0);
}

TEST_CASE("slices give the same bits whoever owns them") {
  test::on_every_target([] {
    const int vocab = 20001, rows = 3;
    auto logits = test::random_floats(std::size_t(rows) * vocab, 3, 3);
    for (int i = 0; i < vocab; ++i) logits[vocab + i] = std::nearbyint(logits[vocab + i]);  // ties
    logits[2 * vocab + 5000] = std::nanf("");
    for (const int width : {1, 8, 1500}) {
      const auto one = rank(logits, vocab, width);
      for (const auto& cuts : std::vector<std::vector<int>>{{0, vocab},
                                                            {0, 1024, vocab},
                                                            {0, 10240, 11264, vocab},
                                                            {0, 2048, 18432, 19456, vocab}}) {
        const auto many = rank(logits, vocab, width, 2, cuts);
        CHECK(many.tokens == one.tokens);
        CHECK(many.hashes == one.hashes);
        CHECK(many.has_nan == one.has_nan);
        CHECK(bits_of(many.probabilities) == bits_of(one.probabilities));
        CHECK(bits_of(many.asked) == bits_of(one.asked));
        CHECK(bits_of(many.gaps) == bits_of(one.gaps));
      }
    }
  });
}

}  // namespace
}  // namespace dex
