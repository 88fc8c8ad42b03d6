#include "kernels/distill.h"

#include <algorithm>
#include <limits>

#include "tests/kernels/cuda/support.h"

namespace dex {
namespace {

using test::bits_of;
using test::part;

struct Loss {
  std::vector<float> kl, difference;
  std::vector<std::uint8_t> agrees;
};

Loss distill(const std::vector<float>& teacher, const std::vector<float>& student, int rows,
             float tau, Dtype dtype = Dtype::f32, bool in_place = false,
             bool every_schedule = true) {
  const int vocab = int(teacher.size()) / rows;
  const test::Kept t(teacher, dtype);
  Loss loss;
  test::in_schedules(every_schedule, [&] {
    const test::Kept s(student, dtype), difference(std::vector<float>(student.size(), -9), dtype);
    const test::DeviceArray<float> kl(rows);
    const test::DeviceArray<std::uint8_t> agrees(rows);
    void* to = in_place ? s.data() : difference.data();
    REQUIRE(cuda::distill_rows({.teacher = t.data(),
                                .student = s.data(),
                                .difference = to,
                                .kl = kl.get(),
                                .agrees = agrees.get(),
                                .rows = rows,
                                .vocab = vocab,
                                .inverse_tau = 1 / tau,
                                .dtype = dtype},
                               nullptr) == 0);
    const auto bytes = (in_place ? s : difference).memory.read();
    loss = {kl.read(), {}, agrees.read()};
    for (std::size_t i = 0; i < student.size(); ++i) {
      float wide;
      std::uint16_t narrow;
      if (dtype == Dtype::f32)
        std::memcpy(&wide, &bytes[i * 4], 4);
      else
        std::memcpy(&narrow, &bytes[i * 2], 2), wide = test::widened(narrow);
      loss.difference.push_back(wide);
    }
    auto all = loss.difference;
    all.insert(all.end(), loss.kl.begin(), loss.kl.end());
    return all;
  });
  return loss;
}

TEST_CASE("a row's divergence and gradient are the softmax formulas in float64") {
  for (const int vocab : {1, 2, 33, 513, 1700})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const float tau = vocab % 2 ? 2.5f : 1.0f;
      const test::Kept t(test::random_floats(std::size_t(2) * vocab, 1, 4), dtype),
          s(test::random_floats(std::size_t(2) * vocab, 2, 4), dtype);
      const auto loss = distill(t.values, s.values, 2, tau, dtype);
      CAPTURE(vocab, name_of(dtype));
      for (int r = 0; r < 2; ++r) {
        const auto tr = part(t.values, std::size_t(r) * vocab, vocab),
                   sr = part(s.values, std::size_t(r) * vocab, vocab);
        const auto pt = test::softmax(tr, tau), ps = test::softmax(sr, tau);
        double want = 0, worst = 0;
        for (int i = 0; i < vocab; ++i) {
          want += pt[i] * (std::log(pt[i]) - std::log(ps[i]));
          const double size = std::abs(ps[i] - pt[i]);
          worst = std::max(worst,
                           std::abs(loss.difference[std::size_t(r) * vocab + i] - (ps[i] - pt[i])) -
                               (dtype == Dtype::bf16 ? 0.004 : 1e-5) * size);
        }
        CHECK(worst <= 1e-7);
        CHECK(loss.kl[r] == Approx(want).epsilon(4e-6).margin(2e-6));
        CHECK(loss.agrees[r] == (std::max_element(tr.begin(), tr.end()) - tr.begin() ==
                                 std::max_element(sr.begin(), sr.end()) - sr.begin()));
        const auto alone = distill(tr, sr, 1, tau, dtype, true, false);
        CHECK(bits_of(alone.kl) == bits_of(part(loss.kl, r, 1)));
        CHECK(bits_of(alone.difference) ==
              bits_of(part(loss.difference, std::size_t(r) * vocab, vocab)));
      }
    }
}

TEST_CASE("the best token is the lowest id among equals") {
  const auto agrees = [](const std::vector<float>& t, const std::vector<float>& s) {
    return distill(t, s, 1, 1, Dtype::f32, false, false).agrees[0];
  };
  CHECK(agrees({1, 5, 5, 0}, {0, 7, 2, 7}) == 1);
  CHECK(agrees({1, 5, 5, 0}, {0, 2, 7, 7}) == 0);
  std::vector<float> t(1300, 0), s(1300, -1);
  t[1200] = t[701] = 3, s[701] = 4, s[1299] = 4;
  CHECK(agrees(t, s) == 1);
  s[188] = 4;
  CHECK(agrees(t, s) == 0);
  s[188] = s[0] = t[3] = std::nanf("");
  CHECK(agrees(t, s) == 1);
}

TEST_CASE("a teacher's logit of minus infinity costs nothing") {
  std::vector<float> t(600, -1), s(600, 1);
  t[5] = -std::numeric_limits<float>::infinity();
  const auto loss = distill(t, s, 1, 1);
  CHECK(loss.kl[0] == Approx(std::log(600.0 / 599)).epsilon(1e-4));
  CHECK(loss.difference[5] == Approx(1 / 600.0));
}

TEST_CASE("NaN among the logits shows in the loss") {
  for (int place = 0; place < 1200; place += 67) {
    std::vector<float> t(600, 1), s(600, 2);
    (place < 600 ? t : s)[std::size_t(place % 600)] = std::nanf("");
    CHECK(std::isnan(distill(t, s, 1, 1, Dtype::f32, false, false).kl[0]));
  }
}

TEST_CASE("distill_rows of no rows does nothing") {
  CHECK(cuda::distill_rows({.vocab = 3}, nullptr) == 0);
}

}  // namespace
}  // namespace dex
