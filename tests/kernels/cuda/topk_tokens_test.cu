#include "kernels/topk_tokens.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/kernels/cuda/support.h"

namespace dex {
namespace {

using test::bits_of;
using test::part;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Ranked {
  std::vector<std::int32_t> tokens;
  std::vector<float> probabilities, asked, gaps;
  std::vector<std::uint64_t> hashes;
  std::vector<std::uint8_t> has_nan;
};

// As cpu::topk_tokens's test has it.
void by_owners(const TopkTokens& p, const std::vector<float>& logits,
               const std::vector<int>& cuts) {
  const std::size_t all = std::size_t(vocab_slices(p.vocab) * p.rows);
  const int kept = kept_of_slice(p.width);
  const test::DeviceArray<VocabSlice> slices(all);
  const test::DeviceArray<RankKey> best(all * std::size_t(kept));
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    std::vector<float> own;
    for (int row = 0; row < p.rows; ++row) {
      const auto from = logits.begin() + std::ptrdiff_t{row} * p.vocab;
      own.insert(own.end(), from + cuts[i], from + cuts[i + 1]);
    }
    const test::DeviceArray<float> device_own(own);
    const std::ptrdiff_t before = std::ptrdiff_t{cuts[i] / kVocabSlice} * p.rows;
    REQUIRE(cuda::topk_slices({.logits = device_own.get(),
                               .rows = p.rows,
                               .ids = cuts[i + 1] - cuts[i],
                               .first_id = cuts[i],
                               .width = p.width,
                               .asked = p.asked,
                               .asked_begin = p.asked_begin,
                               .asked_logits = p.asked_probabilities,
                               .slices = slices.get() + before,
                               .best = best.get() + before * kept},
                              nullptr) == 0);
    gpu::synchronize();
  }
  REQUIRE(cuda::topk_combine({.wanted = p, .slices = slices.get(), .best = best.get()}, nullptr) ==
          0);
  gpu::synchronize();
}

// Asks every row for the probability of every id, and checks the hashes; by owners where there are
// cuts.
Ranked rank(const std::vector<float>& logits, int vocab, int width, bool every_schedule = true,
            const std::vector<int>& cuts = {}) {
  const int rows = int(logits.size()) / vocab;
  std::vector<std::int32_t> asked(logits.size()), begin(std::size_t(rows) + 1);
  for (std::size_t i = 0; i < asked.size(); ++i) asked[i] = std::int32_t(i) % vocab;
  for (int i = 0; i <= rows; ++i) begin[i] = i * vocab;
  const test::DeviceArray<float> device_logits(logits);
  const test::DeviceArray<std::int32_t> device_asked(asked), device_begin(begin);
  Ranked r;
  test::in_schedules(every_schedule, [&] {
    const std::size_t ranked = std::size_t(rows) * width;
    const test::DeviceArray<std::int32_t> tokens(ranked);
    const test::DeviceArray<float> probabilities(ranked), asked_probabilities(logits.size()),
        gaps(rows);
    const test::DeviceArray<std::uint64_t> hashes(rows);
    const test::DeviceArray<std::uint8_t> has_nan(rows);
    const TopkTokens p{.logits = device_logits.get(),
                       .rows = rows,
                       .vocab = vocab,
                       .width = width,
                       .tokens = tokens.get(),
                       .probabilities = probabilities.get(),
                       .asked = device_asked.get(),
                       .asked_begin = device_begin.get(),
                       .asked_probabilities = asked_probabilities.get(),
                       .gaps = gaps.get(),
                       .hashes = hashes.get(),
                       .has_nan = reinterpret_cast<bool*>(has_nan.get())};
    const test::Workspace workspace(cuda::topk_tokens_workspace(p));
    if (cuts.empty())
      REQUIRE(cuda::topk_tokens(p, workspace.get(), nullptr) == 0);
    else
      by_owners(p, logits, cuts);
    r = {tokens.read(), probabilities.read(), asked_probabilities.read(),
         gaps.read(),   hashes.read(),        has_nan.read()};
    auto all = bits_of(r.tokens);
    for (const auto* more : {&r.probabilities, &r.asked, &r.gaps})
      for (const auto bits : bits_of(*more)) all.push_back(bits);
    return all;
  });

  for (int row = 0; row < rows; ++row)
    CHECK(r.hashes[row] == test::logit_hash(part(logits, std::size_t(row) * vocab, vocab)));
  return r;
}

void check_row(const float* logits, int vocab, int width, const Ranked& r, int row) {
  const std::vector<float> all(logits, logits + vocab);
  const auto order = test::ranked(all);
  const auto softmax = test::softmax(all);
  double worst = 0;
  for (int t = 0; t < vocab; ++t) {
    const double want = softmax[t];
    worst = std::max(worst, std::abs(r.asked[std::size_t(row) * vocab + t] - want) / want);
  }
  CHECK(worst <= 3e-6);
  for (int i = 0; i < width; ++i) {
    REQUIRE(r.tokens[row * width + i] == order[i]);
    REQUIRE(r.probabilities[row * width + i] == r.asked[std::size_t(row) * vocab + order[i]]);
  }
  if (vocab > 1) REQUIRE(r.gaps[row] == logits[order[0]] - logits[order[1]]);
  REQUIRE(r.has_nan[row] == 0);
}

TEST_CASE(
    "topk_tokens agrees with a stable sort, a float64 softmax and the hash as it is defined") {
  for (const int vocab : {1, 2, 7, 16, 1001, 5000, 9000})
    for (const int width : {1, 2, 8}) {
      if (width > vocab || (vocab > 5000 && width > 2)) continue;
      const auto logits = test::random_floats(std::size_t(2) * vocab, 1, 4);
      const auto r = rank(logits, vocab, width, vocab <= 5000);
      CAPTURE(vocab, width);
      for (int row = 0; row < 2; ++row)
        check_row(logits.data() + std::size_t(row) * vocab, vocab, width, r, row);
    }
}

TEST_CASE("topk_tokens ranks a whole vocabulary") {
  const auto logits = test::random_floats(60, 1, 4);
  const auto r = rank(logits, 60, 60);
  check_row(logits.data(), 60, 60, r, 0);
}

TEST_CASE(
    "equal logits rank by the lowest id, zeros of both signs among them, in one slice and across "
    "slices") {
  std::vector<float> logits(5000, -1);
  for (const int t : {4693, 40, 17, 41}) logits[t] = t % 2 ? 0.0f : -0.0f;
  CHECK(rank(logits, 5000, 6).tokens == std::vector<std::int32_t>{17, 40, 41, 4693, 0, 1});
  CHECK(rank(logits, 5000, 1, false).gaps[0] == 0);
  CHECK(rank(std::vector<float>(100, 2.5f), 100, 3).tokens == std::vector<std::int32_t>{0, 1, 2});
}

TEST_CASE("logits that are equal only as bf16 rank by the lowest id") {
  std::vector<float> logits;
  for (const float v : test::random_floats(4200, 8))
    logits.push_back(test::widened(gpu::to_bf16(1 + v / 100).u));
  check_row(logits.data(), 4200, 8, rank(logits, 4200, 8, false), 0);
}

TEST_CASE("a logit of minus infinity has probability 0 and still ranks") {
  std::vector<float> logits(4200, -kInfinity);
  logits[30] = 1, logits[20] = 0;
  const auto r = rank(logits, 4200, 4, false);
  CHECK(r.tokens == std::vector<std::int32_t>{30, 20, 0, 1});
  CHECK(r.probabilities[2] == 0);
  CHECK(r.probabilities[0] + r.probabilities[1] == Approx(1));
  CHECK(r.has_nan[0] == 0);
  logits[20] = -kInfinity;
  CHECK(rank(logits, 4200, 1, false).gaps[0] == kInfinity);
  CHECK(rank(logits, 4200, 1, false).probabilities[0] == 1);
  const auto none = rank(std::vector<float>(50, -kInfinity), 50, 2, false);
  CHECK(none.tokens == std::vector<std::int32_t>{0, 1});
  CHECK(none.gaps[0] == 0);
  CHECK(none.has_nan[0] == 0);
}

TEST_CASE("NaN is told for its own row") {
  for (const int at : {0, 15, 4150}) {
    auto logits = test::random_floats(3 * 4200, 2);
    logits[4200 + at] = std::nanf("");
    CHECK(rank(logits, 4200, 2, false).has_nan == std::vector<std::uint8_t>{0, 1, 0});
  }
  std::vector<float> infinite(40, 1);
  infinite[3] = kInfinity;
  CHECK(rank(infinite, 40, 1, false).has_nan[0] == 1);
}

TEST_CASE("a row ranks with the same bits alone and among others") {
  const int vocab = 4303, rows = 9;
  const auto logits = test::random_floats(std::size_t(rows) * vocab, 3, 3);
  const auto all = rank(logits, vocab, 3, false);
  for (int row = 0; row < rows; ++row) {
    const auto alone = rank(part(logits, std::size_t(row) * vocab, vocab), vocab, 3, false);
    CHECK(alone.hashes[0] == all.hashes[row]);
    CHECK(bits_of(alone.asked) == bits_of(part(all.asked, std::size_t(row) * vocab, vocab)));
  }
}

TEST_CASE("slices give the same bits whoever owns them") {
  const int vocab = 5001, rows = 2;
  const auto logits = test::random_floats(std::size_t(rows) * vocab, 3, 3);
  const auto one = rank(logits, vocab, 3, false);
  for (const auto& cuts : std::vector<std::vector<int>>{{0, 1024, vocab}, {0, 3072, 4096, vocab}}) {
    const auto many = rank(logits, vocab, 3, false, cuts);
    CHECK(many.tokens == one.tokens);
    CHECK(many.hashes == one.hashes);
    CHECK(bits_of(many.probabilities) == bits_of(one.probabilities));
    CHECK(bits_of(many.asked) == bits_of(one.asked));
    CHECK(bits_of(many.gaps) == bits_of(one.gaps));
  }
}

TEST_CASE("more slices than a block has threads are combined") {
  const int count = 600;
  const auto values = test::random_floats(2 * count, 5, 2);
  std::vector<VocabSlice> slices;
  std::vector<RankKey> best;
  double sum = 0;
  std::uint64_t hash = 0;
  for (int s = 0; s < count; ++s) {
    const float largest = values[s];
    slices.push_back({largest, 1 + std::abs(values[count + s]), 0x123456789abcdefu * unsigned(s)});
    best.push_back(rank_key(largest, s * kVocabSlice));
    best.push_back(0);
    sum += slices.back().sum * std::exp(double(largest));
    hash += slices.back().hash;
  }
  const test::DeviceArray<VocabSlice> device_slices(slices);
  const test::DeviceArray<RankKey> device_best(best);
  const auto bits = test::in_every_schedule([&] {
    const test::DeviceArray<std::int32_t> token(1);
    const test::DeviceArray<float> probability(1);
    const test::DeviceArray<std::uint64_t> device_hash(1);
    const TopkTokens p{.rows = 1,
                       .vocab = count * kVocabSlice,
                       .tokens = token.get(),
                       .probabilities = probability.get(),
                       .hashes = device_hash.get()};
    REQUIRE(cuda::topk_combine({p, device_slices.get(), device_best.get()}, nullptr) == 0);
    return std::vector<std::uint64_t>{device_hash.read()[0], std::uint64_t(token.read()[0]),
                                      std::bit_cast<std::uint32_t>(probability.read()[0])};
  });
  const auto top = std::max_element(values.begin(), values.begin() + count);
  CHECK(bits[0] == hash);
  CHECK(int(bits[1]) == (top - values.begin()) * kVocabSlice);
  CHECK(std::bit_cast<float>(std::uint32_t(bits[2])) ==
        Approx(std::exp(double(*top)) / sum).epsilon(1e-5));
}

TEST_CASE("topk_tokens takes more rows than a grid is high") {
  constexpr int kRows = 65537, kVocab = 5, kEnd = 50;
  const auto logits = test::random_floats(std::size_t{kRows} * kVocab, 7);
  const test::DeviceArray<float> device_logits(logits);
  const test::DeviceArray<std::int32_t> tokens(kRows);
  const test::DeviceArray<std::uint64_t> hashes(kRows);
  const TopkTokens p{.logits = device_logits.get(),
                     .rows = kRows,
                     .vocab = kVocab,
                     .width = 1,
                     .tokens = tokens.get(),
                     .hashes = hashes.get()};
  const test::Workspace workspace(cuda::topk_tokens_workspace(p));
  const test::OnlyEnds ends(kEnd);
  REQUIRE(cuda::topk_tokens(p, workspace.get(), nullptr) == 0);
  const auto got = tokens.read();
  const auto hash = hashes.read();
  for (int i = 0; i < 2 * kEnd; ++i) {
    const auto row = std::size_t(i < kEnd ? i : kRows - 1 - (i - kEnd));
    const auto own = part(logits, row * kVocab, kVocab);
    CAPTURE(row);
    CHECK(got[row] == test::ranked(own)[0]);
    CHECK(hash[row] == test::logit_hash(own));
  }
}

TEST_CASE("topk_tokens refuses a workspace that is too small and does nothing for no rows") {
  TopkTokens p{.rows = 2, .vocab = 100, .width = 3};
  CHECK(cuda::topk_tokens(p, {nullptr, cuda::topk_tokens_workspace(p) - 1}, nullptr) ==
        cuda::kTooSmall);
  p.rows = 0;
  CHECK(cuda::topk_tokens(p, {}, nullptr) == 0);
}

}  // namespace
}  // namespace dex
