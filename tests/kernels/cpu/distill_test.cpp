#include "kernels/distill.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/reference.h"

using namespace dex;

namespace {

float widened(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
std::uint16_t narrowed(float value) {
  return std::uint16_t((std::bit_cast<std::uint32_t>(value) + 0x8000u) >> 16);
}

std::vector<float> random_logits(int count, std::mt19937& random, bool narrow) {
  std::normal_distribution<float> normal(3, 4);
  std::vector<float> logits;
  for (int i = 0; i < count; ++i)
    logits.push_back(narrow ? widened(narrowed(normal(random))) : normal(random));
  return logits;
}

void distill_one(const std::vector<float>& teacher, const std::vector<float>& student,
                 std::vector<float>& difference, float& kl, std::uint8_t& agrees) {
  cpu::distill_rows({.teacher = teacher.data(),
                     .student = student.data(),
                     .difference = difference.data(),
                     .kl = &kl,
                     .agrees = &agrees,
                     .rows = 1,
                     .vocab = int(teacher.size())});
}

}  // namespace

TEST_CASE("a row's divergence and gradient are the softmax formulas in float64") {
  const int vocab = GENERATE(1, 2, 15, 16, 17, 333);
  const float tau = GENERATE(1.0f, 2.5f);
  const bool narrow = GENERATE(false, true);
  constexpr int kRows = 3;
  std::mt19937 random{unsigned(vocab)};
  const auto t = random_logits(kRows * vocab, random, narrow),
             s = random_logits(kRows * vocab, random, narrow);
  std::vector<float> kl(kRows), wide(t.size(), -9);
  std::vector<std::uint16_t> t16, s16, narrow_difference(t.size());
  for (float z : t) t16.push_back(narrowed(z));
  for (float z : s) s16.push_back(narrowed(z));
  std::vector<std::uint8_t> agrees(kRows, 7);
  DistillRows p{.kl = kl.data(),
                .agrees = agrees.data(),
                .rows = kRows,
                .vocab = vocab,
                .inverse_tau = 1 / tau};
  if (narrow)
    p.teacher = t16.data(), p.student = s16.data(), p.difference = narrow_difference.data(),
    p.dtype = Dtype::bf16;
  else
    p.teacher = t.data(), p.student = s.data(), p.difference = wide.data();
  cpu::distill_rows(p);

  for (int r = 0; r < kRows; ++r) {
    const auto row = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + r * vocab, all.begin() + (r + 1) * vocab);
    };
    const auto tr = row(t), sr = row(s);
    const auto pt = test::softmax(tr, tau), ps = test::softmax(sr, tau);
    double wanted = 0;
    for (int i = 0; i < vocab; ++i) {
      wanted += pt[i] * (std::log(pt[i]) - std::log(ps[i]));
      const float seen = narrow ? widened(narrow_difference[r * vocab + i]) : wide[r * vocab + i];
      CHECK(seen == Approx(ps[i] - pt[i])
                        .margin(narrow ? 0.004 * std::abs(ps[i] - pt[i]) + 1e-7 : 1e-7)
                        .epsilon(1e-5));
    }
    CHECK(kl[r] == Approx(wanted).epsilon(2e-6).margin(1e-6));
    CHECK(agrees[r] == (std::max_element(tr.begin(), tr.end()) - tr.begin() ==
                        std::max_element(sr.begin(), sr.end()) - sr.begin()));
  }
}

TEST_CASE("the difference may take the student's place") {
  std::mt19937 random(1);
  const auto t = random_logits(40, random, false);
  auto s = random_logits(40, random, false), apart = s;
  float kl[2];
  std::uint8_t agrees;
  distill_one(t, s, apart, kl[0], agrees);
  distill_one(t, s, s, kl[1], agrees);
  CHECK(s == apart);
  CHECK(kl[0] == kl[1]);
}

TEST_CASE("the best token is the lowest id among equals") {
  const std::vector<float> t{1, 5, 5, 0}, s{0, 7, 2, 7};
  std::vector<float> difference(4);
  float kl;
  std::uint8_t agrees = 9;
  distill_one(t, s, difference, kl, agrees);
  CHECK(agrees == 1);
}

TEST_CASE("NaN is never the best token") {
  for (int place = 0; place < 50; ++place) {
    std::vector<float> t(50, 1), s(50, 2), difference(50);
    const int best = place == 20 ? 21 : 20;
    t[best] = 3, s[best] = 4, s[place] = std::numeric_limits<float>::quiet_NaN();
    float kl;
    std::uint8_t agrees = 9;
    distill_one(t, s, difference, kl, agrees);
    CHECK(agrees == 1);
  }
}

TEST_CASE("NaN among the logits shows in the loss") {
  for (int place = 0; place < 100; ++place) {
    std::vector<float> t(50, 1), s(50, 2), difference(50);
    (place < 50 ? t : s)[place % 50] = std::numeric_limits<float>::quiet_NaN();
    float kl = 0;
    std::uint8_t agrees;
    distill_one(t, s, difference, kl, agrees);
    CHECK(std::isnan(kl));
  }
}

TEST_CASE("students of one teacher get what each gets alone") {
  constexpr int kRows = 3, kVocab = 37;
  std::mt19937 random(2);
  const auto t = random_logits(kRows * kVocab, random, false);
  std::vector<std::vector<float>> students, together(3, std::vector<float>(kRows)),
      alone = together;
  std::vector<std::vector<std::uint8_t>> agrees(3, std::vector<std::uint8_t>(kRows, 7)),
      agrees_alone = agrees;
  for (int k = 0; k < 3; ++k)
    students.push_back(k == 2 ? t : random_logits(kRows * kVocab, random, false));
  auto apart = students, beside = students;
  std::vector<DistillRows> all;
  for (std::size_t k = 0; k < 3; ++k) {
    DistillRows p{.teacher = t.data(),
                  .student = students[k].data(),
                  .difference = apart[k].data(),
                  .kl = alone[k].data(),
                  .agrees = agrees_alone[k].data(),
                  .rows = kRows,
                  .vocab = kVocab,
                  .inverse_tau = 0.5f};
    cpu::distill_rows(p);
    p.difference = beside[k].data(), p.kl = together[k].data(), p.agrees = agrees[k].data();
    all.push_back(p);
  }
  cpu::distill_rows(all);
  CHECK(beside == apart);
  CHECK(together == alone);
  CHECK(agrees == agrees_alone);
  CHECK(agrees[2] == std::vector<std::uint8_t>(kRows, 1));
  cpu::distill_rows(std::span<const DistillRows>());
}
