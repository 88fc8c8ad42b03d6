#include "kernels/distill.h"

#include <limits>

#include "hwy/aligned_allocator.h"
#include "kernels/ceil_div.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/distill.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {
namespace {

using Vec = hn::Vec<Floats>;
constexpr std::size_t kLanes = hn::MaxLanes(Floats());

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

struct Softmax {                  // of a row
  float max = 0;                  // of the logits as they are
  float sum = 0;                  // of powers; NaN when a logit is
  const float* powers = nullptr;  // e^((logit - max) / tau)
  std::size_t best = 0;           // the first logit that is the largest
  bool has_nan() const { return sum != sum; }
};

// The best token (kernels/rank_key.h), where `value` is the largest logit.
template <class T>
std::size_t first_of(const T* row, std::size_t vocab, float value) {
  if (value == kLowest) return 0;  // every logit is
  const Floats d;
  const Vec wanted = hn::Set(d, value);
  for (std::size_t i = 0; i < vocab; i += kLanes) {
    const auto lane = hn::FindFirstTrue(d, hn::Eq(logits_at(row, i, vocab), wanted));
    if (lane >= 0) return i + std::size_t(lane);
  }
  return vocab;
}

// `powers` has room for the row, and the lanes of its last vector.
template <class T>
Softmax softmax_of(const T* row, std::size_t vocab, float inverse_tau, float* powers) {
  const Floats d;
  Vec top = hn::Set(d, kLowest);
  for (std::size_t i = 0; i < vocab; i += kLanes) top = larger(top, logits_at(row, i, vocab));
  Softmax s{.max = max_of(d, top), .powers = powers};
  const Vec max = hn::Set(d, s.max), scale = hn::Set(d, inverse_tau);
  Vec sum = hn::Zero(d);
  for (std::size_t i = 0; i < vocab; i += kLanes) {
    const Vec power = power_of(d, hn::Mul(hn::Sub(logits_at(row, i, vocab), max), scale));
    hn::Store(power, d, powers + i);
    sum = hn::Add(sum, power);
  }
  s.sum = sum_of(d, sum);
  s.best = first_of(row, vocab, s.max);
  return s;
}

template <class T>
void distill_row(const DistillRows& p, int r, const Softmax& t, float* powers) {
  const Floats d;
  const auto vocab = std::size_t(p.vocab);
  const std::size_t at = std::size_t(r) * vocab;
  const T* teacher = static_cast<const T*>(p.teacher) + at;
  const T* student = static_cast<const T*>(p.student) + at;
  T* difference = static_cast<T*>(p.difference) + at;
  const Softmax s = softmax_of(student, vocab, p.inverse_tau, powers);
  p.agrees[r] = t.best == s.best;

  // log p - log q = (teacher - t.max - student + s.max) / tau - log t.sum + log s.sum
  const Vec scale = hn::Set(d, p.inverse_tau), t_max = hn::Set(d, t.max), s_max = hn::Set(d, s.max),
            logs = hn::Sub(hn::Log(d, hn::Set(d, t.sum)), hn::Log(d, hn::Set(d, s.sum))),
            t_share = hn::Set(d, 1 / t.sum), s_share = hn::Set(d, 1 / s.sum);
  Vec kl = hn::Zero(d);
  for (std::size_t i = 0; i < vocab; i += kLanes) {
    const Vec log_p = hn::Sub(logits_at(teacher, i, vocab), t_max),
              log_q = hn::Sub(logits_at(student, i, vocab), s_max);
    const Vec p_over_q = hn::Sub(hn::Mul(hn::Sub(log_p, log_q), scale), logs);
    const Vec probability = hn::Mul(hn::Load(d, t.powers + i), t_share);
    // Where the teacher gives nothing, (-inf) - (-inf) past the row's end included, nothing is
    // lost.
    const auto counts = hn::Ne(probability, hn::Zero(d));
    kl = hn::Add(kl, hn::IfThenElseZero(counts, hn::Mul(probability, p_over_q)));
    store(hn::Sub(hn::Mul(hn::Load(d, s.powers + i), s_share), probability), difference + i,
          vocab - i);
  }
  p.kl[r] = t.has_nan() || s.has_nan() ? std::numeric_limits<float>::quiet_NaN() : sum_of(d, kl);
}

template <class T>
void distill_each(std::span<const DistillRows> students) {
  const DistillRows& one = students.front();
  const auto vocab = std::size_t(one.vocab), padded = round_up(vocab, kLanes);
  const auto memory = hwy::AllocateAligned<float>(2 * padded);
  for (int r = 0; r < one.rows; ++r) {
    const T* teacher = static_cast<const T*>(one.teacher) + std::size_t(r) * vocab;
    const Softmax t = softmax_of(teacher, vocab, one.inverse_tau, memory.get());
    for (const DistillRows& p : students) distill_row<T>(p, r, t, memory.get() + padded);
  }
}

void distill(std::span<const DistillRows> students) {
  if (students.front().dtype == Dtype::f32)
    distill_each<float>(students);
  else
    distill_each<hwy::bfloat16_t>(students);
}

}  // namespace
}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex {
HWY_EXPORT(distill);

void cpu::distill_rows(const DistillRows& p) { distill_rows(std::span(&p, 1)); }

void cpu::distill_rows(std::span<const DistillRows> students) {
  if (!students.empty()) HWY_DYNAMIC_DISPATCH(distill)(students);
}

}  // namespace dex
#endif
