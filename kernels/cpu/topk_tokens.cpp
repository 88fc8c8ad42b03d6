#include "kernels/topk_tokens.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/topk_tokens.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"

#ifndef DEX_RANK_TOKENS_ONCE
#define DEX_RANK_TOKENS_ONCE
namespace dex {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct Candidate {
  float logit;
  std::int32_t token;
};

bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// The best `width` seen so far; the worst of them on top.
struct Best {
  std::size_t width = 0;
  std::vector<Candidate> heap = {};

  float bar() const { return heap.size() < width ? kLowest : heap.front().logit; }
  // Tokens come in rising order, so an equal one never displaces another.
  void offer(float logit, std::int32_t token) {
    const Candidate c{logit == logit ? logit : kLowest, token};
    if (heap.size() == width) {
      if (!(c.logit > heap.front().logit)) return;
      std::pop_heap(heap.begin(), heap.end(), better);
      heap.pop_back();
    }
    heap.push_back(c);
    std::push_heap(heap.begin(), heap.end(), better);
  }
};

constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15u;

// One to one, so a single changed word always shows; the shift lets the upper bits reach the lower
// ones.
std::uint64_t mixed(std::uint64_t word) { return std::rotl((word ^ word >> 32) * kPrime, 29); }

// Eight chains side by side, 8 bytes a step each: one chain would wait for its own multiply.
std::uint64_t hash_of(const float* logits, int count) {
  constexpr int kChains = 8;
  std::uint64_t chain[kChains];
  for (int c = 0; c < kChains; ++c) chain[c] = kPrime * (c + 1);
  int i = 0;
  for (; i + 2 * kChains <= count; i += 2 * kChains) {
    std::uint64_t words[kChains];
    std::memcpy(words, logits + i, sizeof words);
    for (int c = 0; c < kChains; ++c) chain[c] = mixed(chain[c] ^ words[c]);
  }
  std::uint64_t hash = std::uint64_t(count);
  for (; i < count; ++i) hash = mixed(hash ^ std::bit_cast<std::uint32_t>(logits[i]));
  for (const std::uint64_t c : chain) hash = mixed(hash ^ c);
  return hash;
}

}  // namespace
}  // namespace dex
#endif

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace {

using Vec = hn::Vec<Floats>;
constexpr int kLanes = hn::MaxLanes(Floats());

struct Softmax {
  float max = 0, sum = 0;

  float probability(float logit) const {
    const Floats d;
    const float e = hn::GetLane(exp_of(d, hn::Set(d, logit - max)));
    return sum > 0 ? e / sum : e;
  }
};

// One accumulator per lane, short rows padded with -inf: token t is always added in lane t mod
// kLanes.
Softmax softmax_of(const float* logits, int vocab) {
  const Floats d;
  const int full = vocab / kLanes * kLanes;
  alignas(64) float tail[kLanes];
  std::fill(tail, tail + kLanes, kLowest);
  std::copy(logits + full, logits + vocab, tail);
  Vec top = hn::Load(d, tail);
  for (int i = 0; i < full; i += kLanes) top = hn::Max(top, hn::LoadU(d, logits + i));
  Softmax s{.max = max_of(d, top)};
  if (s.max == kLowest) s.max = 0;
  const Vec max = hn::Set(d, s.max);
  Vec sum = hn::Zero(d);
  for (int i = 0; i < full; i += kLanes)
    sum = hn::Add(sum, exp_of(d, hn::Sub(hn::LoadU(d, logits + i), max)));
  s.sum = sum_of(d, hn::Add(sum, exp_of(d, hn::Sub(hn::Load(d, tail), max))));
  return s;
}

void best_of(const float* logits, int vocab, Best& best) {
  const Floats d;
  int i = 0;
  for (; i < vocab && best.heap.size() < best.width; ++i) best.offer(logits[i], i);
  Vec bar = hn::Set(d, best.bar());
  for (; i + kLanes <= vocab; i += kLanes) {
    if (HWY_LIKELY(hn::AllFalse(d, hn::Gt(hn::LoadU(d, logits + i), bar)))) continue;
    for (int j = i; j < i + kLanes; ++j) best.offer(logits[j], j);
    bar = hn::Set(d, best.bar());
  }
  for (; i < vocab; ++i) best.offer(logits[i], i);
  std::sort(best.heap.begin(), best.heap.end(), better);
}

float gap_of(const std::vector<Candidate>& ranked) {
  if (ranked.size() < 2 || ranked[1].logit == kLowest)
    return ranked[0].logit == kLowest ? 0.0f : std::numeric_limits<float>::infinity();
  return ranked[0].logit - ranked[1].logit;
}

void rank_row(const TopkTokens& p, int row) {
  const float* logits = p.logits + std::ptrdiff_t(row) * p.vocab;
  const Softmax softmax = softmax_of(logits, p.vocab);
  thread_local Best best;
  best.heap.clear();
  best.width = std::size_t(std::min(std::max(p.width, 2), p.vocab));
  best_of(logits, p.vocab, best);

  const std::ptrdiff_t at = std::ptrdiff_t(row) * p.width;
  for (int i = 0; i < p.width; ++i) {
    p.tokens[at + i] = best.heap[i].token;
    if (p.probabilities) p.probabilities[at + i] = softmax.probability(best.heap[i].logit);
  }
  if (p.asked)
    for (int i = p.asked_begin[row]; i < p.asked_begin[row + 1]; ++i)
      p.asked_probabilities[i] = softmax.probability(logits[p.asked[i]]);
  if (p.gaps) p.gaps[row] = gap_of(best.heap);
  if (p.hashes) p.hashes[row] = hash_of(logits, p.vocab);
  if (p.has_nan) p.has_nan[row] = softmax.sum != softmax.sum;
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(rank_row);

void cpu::topk_tokens(const TopkTokens& p, ThreadPool& pool) {
  pool.run(p.rows, [&](int row) { HWY_DYNAMIC_DISPATCH(rank_row)(p, row); });
}

}  // namespace dex
#endif
