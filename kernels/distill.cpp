#include "kernels/distill.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/distill.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace {

using Vec = hn::Vec<Floats>;
constexpr std::size_t kLanes = hn::MaxLanes(Floats());
constexpr float kLowest = -std::numeric_limits<float>::infinity();

HWY_INLINE void store(Vec v, float* to, std::size_t count) { store_some(Floats(), v, to, count); }
HWY_INLINE void store(Vec v, hwy::bfloat16_t* to, std::size_t count) {
  const hn::Rebind<std::uint16_t, Floats> half;
  const auto bits = hn::TruncateTo(half, bf16_bits(Floats(), v));
  auto* words = reinterpret_cast<std::uint16_t*>(to);
  if (HWY_LIKELY(count >= kLanes)) return hn::StoreU(bits, half, words);
  alignas(64) std::uint16_t padded[kLanes];
  hn::Store(bits, half, padded);
  std::memcpy(words, padded, count * sizeof *words);
}

// Lanes past the row's end count as -inf.
template <class T>
HWY_INLINE Vec logits_at(const T* row, std::size_t i, std::size_t vocab) {
  const Floats d;
  if (HWY_LIKELY(i + kLanes <= vocab)) return load(d, row + i);
  return hn::IfThenElse(hn::FirstN(d, vocab - i), load_some(d, row + i, vocab - i), hn::Set(d, kLowest));
}

struct Softmax {
  float max = 0;         // of the logits as they are
  float log_sum = 0;     // log of the sum of exp((logit - max) / tau)
  bool has_nan = false;
};

template <class T>
Softmax softmax_of(const T* row, std::size_t vocab, float inverse_tau) {
  const Floats d;
  Vec top = hn::Set(d, kLowest);
  auto same = hn::Eq(top, top);
  for (std::size_t i = 0; i < vocab; i += kLanes) {
    const Vec logits = logits_at(row, i, vocab);
    same = hn::And(same, hn::Eq(logits, logits));  // Max and exp_of may lose a NaN
    top = hn::Max(top, logits);
  }
  Softmax s{.max = max_of(d, top), .has_nan = !hn::AllTrue(d, same)};
  const Vec max = hn::Set(d, s.max), scale = hn::Set(d, inverse_tau);
  Vec sum = hn::Zero(d);
  for (std::size_t i = 0; i < vocab; i += kLanes)
    sum = hn::Add(sum, exp_of(d, hn::Mul(hn::Sub(logits_at(row, i, vocab), max), scale)));
  s.log_sum = hn::GetLane(hn::Log(d, hn::Set(d, sum_of(d, sum))));
  return s;
}

template <class T>
std::size_t first_of(const T* row, std::size_t vocab, float value) {
  const Floats d;
  const Vec wanted = hn::Set(d, value);
  for (std::size_t i = 0; i < vocab; i += kLanes) {
    const auto lane = hn::FindFirstTrue(d, hn::Eq(logits_at(row, i, vocab), wanted));
    if (lane >= 0) return i + static_cast<std::size_t>(lane);
  }
  return vocab;
}

template <class T>
void distill_row(const DistillRows& p, int r) {
  const Floats d;
  const auto vocab = static_cast<std::size_t>(p.vocab);
  const std::size_t at = static_cast<std::size_t>(r) * vocab;
  const T* teacher = static_cast<const T*>(p.teacher) + at;
  const T* student = static_cast<const T*>(p.student) + at;
  T* difference = static_cast<T*>(p.difference) + at;
  const Softmax t = softmax_of(teacher, vocab, p.inverse_tau), s = softmax_of(student, vocab, p.inverse_tau);
  p.agrees[r] = first_of(teacher, vocab, t.max) == first_of(student, vocab, s.max);

  const Vec scale = hn::Set(d, p.inverse_tau), t_max = hn::Set(d, t.max), s_max = hn::Set(d, s.max),
            t_log = hn::Set(d, t.log_sum), s_log = hn::Set(d, s.log_sum);
  Vec kl = hn::Zero(d);
  for (std::size_t i = 0; i < vocab; i += kLanes) {
    const Vec log_p = hn::Sub(hn::Mul(hn::Sub(logits_at(teacher, i, vocab), t_max), scale), t_log);
    const Vec log_q = hn::Sub(hn::Mul(hn::Sub(logits_at(student, i, vocab), s_max), scale), s_log);
    const Vec probability = exp_of(d, log_p);
    // Where the teacher gives nothing, (-inf) - (-inf) past the row's end included, nothing is lost.
    const auto counts = hn::Ne(probability, hn::Zero(d));
    kl = hn::Add(kl, hn::IfThenElseZero(counts, hn::Mul(probability, hn::Sub(log_p, log_q))));
    store(hn::Sub(exp_of(d, log_q), probability), difference + i, vocab - i);
  }
  p.kl[r] = t.has_nan || s.has_nan ? std::numeric_limits<float>::quiet_NaN() : sum_of(d, kl);
}

void distill(const DistillRows& p) {
  for (int r = 0; r < p.rows; ++r) {
    if (p.dtype == Dtype::f32) distill_row<float>(p, r);
    else distill_row<hwy::bfloat16_t>(p, r);
  }
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(distill);

void cpu::distill_rows(const DistillRows& p) { HWY_DYNAMIC_DISPATCH(distill)(p); }

}  // namespace dex
#endif
