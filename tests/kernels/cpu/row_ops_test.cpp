#include "kernels/row_ops.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tests/kernels/support.h"

namespace dex {
namespace {

using test::bits_of;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_CASE("rms_norm agrees with float64, in place too, and a row stands alone") {
  test::on_every_target([] {
    for (const int size : {1, 3, 16, 33, 576}) {
      const int rows = 5;
      const auto x = test::random_floats(std::size_t(rows) * size, 1, 3),
                 weight = test::random_floats(size, 2);
      auto y = x;
      cpu::rms_norm({y.data(), weight.data(), y.data(), rows, size, 1e-5f});
      for (int r = 0; r < rows; ++r) {
        double squares = 0;
        for (int i = 0; i < size; ++i) squares += double(x[r * size + i]) * x[r * size + i];
        for (int i = 0; i < size; ++i) {
          const double want = weight[i] * x[r * size + i] / std::sqrt(squares / size + 1e-5);
          CHECK(std::abs(y[r * size + i] - want) <= test::tolerance(Dtype::f32) * std::abs(want));
        }
        std::vector<float> alone(size);
        cpu::rms_norm({x.data() + r * size, weight.data(), alone.data(), 1, size, 1e-5f});
        CHECK(bits_of(alone) == bits_of(y.data() + r * size, size));
      }
    }
  });
}

TEST_CASE("rope turns pairs by position times frequency, far positions too") {
  test::on_every_target([] {
    for (const int head_dim : {2, 6, 8, 24, 64, 128}) {
      const int heads = 3, half = head_dim / 2;
      const std::vector<std::int32_t> positions = {0, 1, 7, 8191, 131071};
      const int rows = positions.size();
      std::vector<float> frequencies(half);
      for (int i = 0; i < half; ++i) frequencies[i] = float(std::pow(10000.0, -2.0 * i / head_dim));
      const auto before = test::random_floats(std::size_t(rows) * heads * head_dim, 4);
      auto x = before;
      cpu::rope({x.data(), positions.data(), frequencies.data(), rows, heads, head_dim});
      for (int r = 0; r < rows; ++r)
        for (int h = 0; h < heads; ++h)
          for (int i = 0; i < half; ++i) {
            const std::size_t at = (std::size_t(r) * heads + h) * head_dim + i;
            const double angle = float(positions[r]) * frequencies[i], a = before[at],
                         b = before[at + half];
            const double size = std::abs(a) + std::abs(b);
            CHECK(std::abs(x[at] - (a * std::cos(angle) - b * std::sin(angle))) <=
                  test::tolerance(Dtype::f32) * size);
            CHECK(std::abs(x[at + half] - (b * std::cos(angle) + a * std::sin(angle))) <=
                  test::tolerance(Dtype::f32) * size);
          }
      for (int r = 0; r < rows; ++r) {
        const std::size_t row = std::size_t(heads) * head_dim;
        std::vector<float> alone(before.begin() + r * row, before.begin() + (r + 1) * row);
        cpu::rope({alone.data(), positions.data() + r, frequencies.data(), 1, heads, head_dim});
        CHECK(bits_of(alone) == bits_of(x.data() + r * row, row));
      }
    }
  });
}

TEST_CASE("a row rotated by a table turns as rope turns it") {
  test::on_every_target([] {
    for (const int head_dim : {2, 6, 64, 80}) {
      const int heads = 3, half = head_dim / 2;
      std::vector<float> sines(half), cosines(half);
      for (int i = 0; i < half; ++i) sines[i] = std::sin(0.3f * i), cosines[i] = std::cos(0.3f * i);
      const auto before = test::random_floats(std::size_t(heads) * head_dim, 4);
      auto x = before;
      cpu::rotate({x.data(), sines.data(), cosines.data(), heads, head_dim});
      for (int h = 0; h < heads; ++h)
        for (int i = 0; i < half; ++i) {
          const std::size_t at = std::size_t(h) * head_dim + i;
          const double a = before[at], b = before[at + half], s = sines[i], c = cosines[i];
          const double size = std::abs(a) + std::abs(b);
          CHECK(std::abs(x[at] - (a * c - b * s)) <= test::tolerance(Dtype::f32) * size);
          CHECK(std::abs(x[at + half] - (b * c + a * s)) <= test::tolerance(Dtype::f32) * size);
        }
    }
  });
}

TEST_CASE("stored values are widened to what they mean") {
  test::on_every_target([] {
    for (const std::size_t count : {1, 15, 16, 33})
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        auto kept = test::stored(test::random_floats(count, 8), dtype);
        std::vector<float> wide(count + 1, 7);
        widen(kept.memory(), wide.data(), std::int64_t(count), dtype);
        CHECK(std::equal(kept.values.begin(), kept.values.end(), wide.begin()));
        CHECK(wide[count] == 7);
      }
  });
}

TEST_CASE("silu_mul agrees with float64 and keeps infinities and NaN") {
  test::on_every_target([] {
    auto gate = test::random_floats(77, 5, 8);
    gate[0] = 0, gate[1] = -200, gate[2] = 200, gate[3] = -87.5f, gate[4] = kInfinity,
    gate[5] = std::nanf("");
    auto up = test::random_floats(77, 6);
    up[4] = 1;
    std::vector<float> y(77), plain = gate;
    cpu::silu_mul({gate.data(), up.data(), y.data(), 77});
    cpu::silu_mul({plain.data(), nullptr, plain.data(), 77});
    CHECK(y[4] == kInfinity);
    CHECK(std::isnan(y[5]));
    CHECK(std::isnan(plain[5]));
    for (int i = 0; i < 77; ++i) {
      if (i == 4 || i == 5) continue;
      const double silu = gate[i] / (1 + std::exp(-double(gate[i])));
      CHECK(std::abs(plain[i] - silu) <= test::tolerance(Dtype::f32) * std::abs(silu) + 1e-35);
      CHECK(std::abs(y[i] - silu * up[i]) <=
            test::tolerance(Dtype::f32) * std::abs(silu * up[i]) + 1e-35);
      float alone;
      cpu::silu_mul({&gate[i], &up[i], &alone, 1});
      CHECK(bits_of(&alone, 1) == bits_of(&y[i], 1));
    }
  });
}

TEST_CASE("axpy rounds once, whatever the lane") {
  test::on_every_target([] {
    const auto x = test::random_floats(53, 7), before = test::random_floats(53, 8);
    auto y = before;
    cpu::axpy({x.data(), y.data(), 53, 0.3f});
    for (int i = 0; i < 53; ++i) {
      CHECK(std::abs(y[i] - (before[i] + 0.3f * double(x[i]))) <= 1e-6);
      float alone = before[i];
      cpu::axpy({&x[i], &alone, 1, 0.3f});
      CHECK(bits_of(&alone, 1) == bits_of(&y[i], 1));
    }
  });
}

TEST_CASE("convert rounds to the nearest bf16, ties to even") {
  test::on_every_target([] {
    auto from = test::random_floats(1000, 9, 100);
    const std::vector<std::uint32_t> special = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff,
                                                0x7f7fffff, 0x7f800000, 0xff800000, 0x00000001,
                                                0x80000000, 0x7f800001, 0xffc00000, 0x00008000};
    for (const auto bits : special) from.push_back(std::bit_cast<float>(bits));
    std::vector<std::uint16_t> to(from.size() + 1, 0xabcd);
    convert(from.data(), to.data(), std::int64_t(from.size()), Dtype::bf16);
    for (std::size_t i = 0; i < from.size(); ++i) CHECK(to[i] == test::to_bf16(from[i]));
    CHECK(to.back() == 0xabcd);
    CHECK(test::to_bf16(std::bit_cast<float>(0x3f808000u)) == 0x3f80);
    CHECK(test::to_bf16(std::bit_cast<float>(0x3f818000u)) == 0x3f82);
  });
}

TEST_CASE("convert keeps every bit of a float") {
  const std::vector<float> from = {0.0f, -0.0f, 1.5f, kInfinity};
  std::vector<float> to(4, 9);
  convert(from.data(), to.data(), 4, Dtype::f32);
  CHECK(bits_of(to) == bits_of(from));
}

TEST_CASE("kv_append writes the rows it was given and no other") {
  test::on_every_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const int size = 19;
      const auto k = test::random_floats(2 * size, 1), v = test::random_floats(2 * size, 2);
      auto keys = test::stored(std::vector<float>(5 * size, 7), dtype), values = keys;
      const std::vector<std::int32_t> rows = {4, 1};
      cpu::kv_append(
          {k.data(), v.data(), rows.data(), keys.memory(), values.memory(), 2, size, dtype});
      const auto at = [&](const test::Stored& s, int i) {
        return dtype == Dtype::f32 ? s.values[i] : test::from_bf16(s.narrow[i]);
      };
      const auto kept_k = test::stored(k, dtype).values, kept_v = test::stored(v, dtype).values;
      for (int i = 0; i < 5 * size; ++i) {
        const int row = i / size, from = row == 4 ? 0 : row == 1 ? 1 : -1;
        CHECK(at(keys, i) == (from < 0 ? 7 : kept_k[from * size + i % size]));
        CHECK(at(values, i) == (from < 0 ? 7 : kept_v[from * size + i % size]));
      }
    }
  });
}

}  // namespace
}  // namespace dex
