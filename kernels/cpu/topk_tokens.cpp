#include "kernels/topk_tokens.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/logit_hash.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/topk_tokens.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"

#ifndef DEX_TOPK_TOKENS_ONCE
#define DEX_TOPK_TOKENS_ONCE
namespace dex {
namespace {

// The best `width` keys seen so far; the worst of them on top.
struct Best {
  std::size_t width = 0;
  std::vector<RankKey> heap = {};

  bool full() const { return heap.size() == width; }
  float bar() const { return full() ? logit_of(heap.front()) : kLowest; }
  void offer(RankKey key) {
    if (full()) {
      if (key < heap.front()) return;
      std::pop_heap(heap.begin(), heap.end(), std::greater());
      heap.pop_back();
    }
    heap.push_back(key);
    std::push_heap(heap.begin(), heap.end(), std::greater());
  }
};

}  // namespace
}  // namespace dex
#endif

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace {

using Vec = hn::Vec<Floats>;
constexpr int kLanes = hn::MaxLanes(Floats());
using Words = hn::ScalableTag<std::uint64_t>;
constexpr int kWords = hn::MaxLanes(Words());

// mixed_pair() of a vector of pairs.
HWY_INLINE hn::Vec<Words> mixed_pairs(hn::Vec<Words> words, hn::Vec<Words> keys) {
  const hn::Repartition<std::uint32_t, Words> halves;
  const auto times = [&](hn::Vec<Words> w, std::uint32_t factor) {
    const auto f = hn::Set(halves, factor);
    const auto low = hn::MulEven(hn::BitCast(halves, w), f),
               high = hn::MulEven(hn::BitCast(halves, hn::ShiftRight<32>(w)), f);
    return hn::Add(low, hn::ShiftLeft<32>(high));
  };
  auto w = hn::Add(words, keys);
  w = times(hn::Xor(w, hn::ShiftRight<32>(w)), kFirstMix);
  w = times(hn::Xor(w, hn::ShiftRight<29>(w)), kSecondMix);
  return hn::Xor(w, hn::ShiftRight<32>(w));
}

// `first` and all but a row's last `count` are even.
std::uint64_t hash_of(const float* logits, int count, int first) {
  const Words d;
  const int pairs = count / 2, whole = pairs / kWords * kWords;
  auto keys = hn::Mul(hn::Iota(d, std::uint64_t(first / 2 + 1)), hn::Set(d, kPairKey));
  const auto step = hn::Set(d, kPairKey * kWords);
  auto sum = hn::Zero(d);
  for (int i = 0; i < whole; i += kWords) {
    const auto words = hn::LoadU(hn::Repartition<float, Words>(), logits + 2 * i);
    sum = hn::Add(sum, mixed_pairs(hn::BitCast(d, words), keys));
    keys = hn::Add(keys, step);
  }
  std::uint64_t hash = hn::GetLane(hn::SumOfLanes(d, sum));
  for (int i = 2 * whole; i < count; i += 2) {
    std::uint32_t bits[2] = {};
    std::memcpy(bits, logits + i, sizeof(float) * std::size_t(std::min(2, count - i)));
    hash += mixed_pair(bits[0], bits[1], (first + i) / 2);
  }
  return hash;
}

// One accumulator per lane, short slices padded with -inf: id t is always added in lane t mod
// kLanes.
VocabSlice slice_of(const float* logits, int count, int first) {
  const Floats d;
  Vec top = hn::Set(d, kLowest), sum = hn::Zero(d);
  auto nan = hn::IsNaN(top);
  for (int i = 0; i < count; i += kLanes) {
    const Vec v = logits_at(logits, i, count);
    top = larger(top, v);
    nan = hn::Or(nan, hn::IsNaN(v));
  }
  const float largest = max_of(d, top);
  const Vec base = hn::Set(d, largest == kLowest ? 0.0f : largest);
  for (int i = 0; i < count; i += kLanes)
    sum = hn::Add(sum, power_of(d, hn::Sub(logits_at(logits, i, count), base)));
  const bool numbers = largest < -kLowest && hn::AllFalse(d, nan);
  return {largest, numbers ? sum_of(d, sum) : std::numeric_limits<float>::quiet_NaN(),
          hash_of(logits, count, first)};
}

void offer_slice(const float* logits, int count, int first, float largest, Best& best) {
  const Floats d;
  int i = 0;
  for (; i < count && !best.full(); ++i) best.offer(rank_key(logits[i], first + i));
  if (!(largest > best.bar())) return;  // an equal one has a higher id than those before
  for (; i < count; i += kLanes) {
    const Vec v = logits_at(logits, i, count);
    if (HWY_LIKELY(hn::AllFalse(d, hn::Gt(v, hn::Set(d, best.bar()))))) continue;
    for (int j = i; j < std::min(i + kLanes, count); ++j)
      best.offer(rank_key(logits[j], first + j));
  }
}

void slices_of_row(const TopkSlices& p, int row) {
  thread_local Best best;
  thread_local std::vector<int> filled;  // keys of a slice
  best.heap.clear();
  best.width = std::size_t(std::max(p.width, 2));
  const int kept = kept_of_slice(p.width);
  const auto at = [&](int s) { return std::ptrdiff_t{s} * p.rows + row; };
  filled.assign(std::size_t(vocab_slices(p.ids)), 0);
  for (int s = 0; s < vocab_slices(p.ids); ++s) {
    const int from = s * kVocabSlice, count = std::min(kVocabSlice, p.ids - from);
    const float* logits = p.logits + std::ptrdiff_t{row} * p.ids + from;
    const VocabSlice slice = slice_of(logits, count, p.first_id + from);
    p.slices[at(s)] = slice;
    offer_slice(logits, count, p.first_id + from, slice.largest, best);
    std::fill_n(p.best + at(s) * kept, kept, RankKey{0});
  }
  std::sort(best.heap.begin(), best.heap.end(), std::greater());
  for (const RankKey key : best.heap) {
    const int s = (token_of(key) - p.first_id) / kVocabSlice;
    if (int& n = filled[s]; n < kept) p.best[at(s) * kept + n++] = key;
  }
}

void find_asked(const TopkSlices& p, int row) {
  if (!p.asked) return;
  for (int i = p.asked_begin[row]; i < p.asked_begin[row + 1]; ++i)
    if (const int id = p.asked[i] - p.first_id; id >= 0 && id < p.ids)
      p.asked_logits[i] = p.logits[std::ptrdiff_t{row} * p.ids + id];
}

struct Softmax {
  float base = 0, sum = 0;

  float probability(float logit) const {
    const Floats d;
    const float e = hn::GetLane(exp_of(d, hn::Set(d, logit - base)));
    return sum > 0 ? e / sum : e;
  }
};

// Of one row of slices, `stride` apart.
Softmax softmax_of(const VocabSlice* slices, int count, int stride) {
  const Floats d;
  float largest = kLowest;
  for (int s = 0; s < count; ++s) largest = std::max(largest, slices[s * stride].largest);
  Softmax softmax{.base = largest == kLowest ? 0.0f : largest};
  for (int s = 0; s < count; s += kLanes) {
    alignas(64) float scales[kLanes] = {};
    const int some = std::min(kLanes, count - s);
    for (int i = 0; i < some; ++i) scales[i] = slices[(s + i) * stride].largest - softmax.base;
    hn::Store(exp_of(d, hn::Load(d, scales)), d, scales);
    for (int i = 0; i < some; ++i) softmax.sum += slices[(s + i) * stride].sum * scales[i];
  }
  return softmax;
}

// The best keys of a row, at least two where there are as many.
const std::vector<RankKey>& ranked(const TopkCombine& p, int row) {
  thread_local std::vector<RankKey> keys;
  keys.clear();
  const int kept = kept_of_slice(p.wanted.width);
  for (int s = 0; s < vocab_slices(p.wanted.vocab); ++s) {
    const RankKey* of_slice = p.best + (std::ptrdiff_t{s} * p.wanted.rows + row) * kept;
    for (int i = 0; i < kept && of_slice[i] != 0; ++i) keys.push_back(of_slice[i]);
  }
  const auto wanted = std::min(keys.size(), std::size_t(std::max(p.wanted.width, 2)));
  std::partial_sort(keys.begin(), keys.begin() + std::ptrdiff_t(wanted), keys.end(),
                    std::greater());
  return keys;
}

void combine_row(const TopkCombine& job, int row) {
  const TopkTokens& p = job.wanted;
  const int slices = vocab_slices(p.vocab);
  const Softmax softmax = softmax_of(job.slices + row, slices, p.rows);
  const std::vector<RankKey>& keys = ranked(job, row);
  const std::ptrdiff_t at = std::ptrdiff_t{row} * p.width;
  for (int i = 0; i < p.width; ++i) {
    p.tokens[at + i] = token_of(keys[i]);
    if (p.probabilities) p.probabilities[at + i] = softmax.probability(logit_of(keys[i]));
  }
  if (p.asked)
    for (int i = p.asked_begin[row]; i < p.asked_begin[row + 1]; ++i)
      p.asked_probabilities[i] = softmax.probability(p.asked_probabilities[i]);
  if (p.gaps) p.gaps[row] = gap_of(keys[0], keys.size() > 1 ? keys[1] : 0);
  if (p.has_nan) p.has_nan[row] = softmax.sum != softmax.sum;
  if (!p.hashes) return;
  p.hashes[row] = 0;
  for (int s = 0; s < slices; ++s)
    p.hashes[row] += job.slices[std::ptrdiff_t{s} * p.rows + row].hash;
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(slices_of_row);
HWY_EXPORT(combine_row);
HWY_EXPORT(find_asked);

void cpu::topk_slices(const TopkSlices& p, ThreadPool& pool) {
  // A row is one task: its logits take less time than waking another thread.
  pool.run(p.rows, [&](int row) {
    HWY_DYNAMIC_DISPATCH(slices_of_row)(p, row);
    HWY_DYNAMIC_DISPATCH(find_asked)(p, row);
  });
}

void cpu::topk_combine(const TopkCombine& p, ThreadPool& pool) {
  pool.run(p.wanted.rows, [&](int row) { HWY_DYNAMIC_DISPATCH(combine_row)(p, row); });
}

void cpu::topk_tokens(const TopkTokens& p, ThreadPool& pool) {
  const auto slices = std::size_t(vocab_slices(p.vocab)) * std::size_t(p.rows);
  thread_local std::vector<VocabSlice> sums;
  thread_local std::vector<RankKey> best;
  sums.resize(std::max(sums.size(), slices));
  best.resize(std::max(best.size(), slices * std::size_t(kept_of_slice(p.width))));
  topk_slices({.logits = p.logits,
               .rows = p.rows,
               .ids = p.vocab,
               .width = p.width,
               .asked = p.asked,
               .asked_begin = p.asked_begin,
               .asked_logits = p.asked_probabilities,
               .slices = sums.data(),
               .best = best.data()},
              pool);
  topk_combine({.wanted = p, .slices = sums.data(), .best = best.data()}, pool);
}

}  // namespace dex
#endif
