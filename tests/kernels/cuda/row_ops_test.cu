#include "kernels/row_ops.h"

#include <limits>

#include "kernels/cuda/angles.h"
#include "tests/kernels/cuda/support.h"

namespace dex {
namespace {

using test::bits_of;
using test::DeviceArray;
using test::part;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> norm(const std::vector<float>& x, const std::vector<float>& weight,
                        bool every_schedule = true) {
  const int size = weight.size(), rows = int(x.size()) / size;
  const DeviceArray<float> device_weight(weight);
  return test::in_schedules(every_schedule, [&] {
    const DeviceArray<float> y(x);
    REQUIRE(cuda::rms_norm({.x = y.get(),
                            .weight = device_weight.get(),
                            .y = y.get(),
                            .rows = rows,
                            .size = size,
                            .eps = 1e-5f},
                           nullptr) == 0);
    return y.read();
  });
}

TEST_CASE("rms_norm agrees with float64, in place, and with itself row by row") {
  for (const int size : {1, 31, 64, 255, 257, 576, 1100}) {
    const auto x = test::random_floats(std::size_t(3) * size, 1, 3),
               weight = test::random_floats(size, 2), y = norm(x, weight);
    CAPTURE(size);
    for (int r = 0; r < 3; ++r) {
      double squares = 0, worst = 0;
      for (int i = 0; i < size; ++i) squares += double(x[r * size + i]) * x[r * size + i];
      for (int i = 0; i < size; ++i) {
        const double want = x[r * size + i] / std::sqrt(squares / size + 1e-5) * weight[i];
        worst = std::max(worst, std::abs(y[r * size + i] - want) / (std::abs(want) + 1e-30));
      }
      CHECK(worst <= 2e-6);
      CHECK(bits_of(norm(part(x, r * size, size), weight, false)) ==
            bits_of(part(y, r * size, size)));
    }
  }
}

TEST_CASE("sines and cosines are right far from zero") {
  double worst = 0;
  for (const float position : {0.0f, 1.0f, 2.0f, 777.0f, 131071.0f, 1048575.0f})
    for (int i = 0; i < 64; ++i) {
      const float angle = position * std::pow(10000.0f, -float(i) / 64);
      for (const float sign : {1.0f, -1.0f}) {
        const auto at = cuda::sine_cosine(sign * angle);
        worst = std::max({worst, std::abs(at.sine - std::sin(double(sign * angle))),
                          std::abs(at.cosine - std::cos(double(angle)))});
      }
    }
  CHECK(worst <= 6e-8);
}

std::vector<float> frequencies(int head_dim) {
  std::vector<float> f;
  for (int i = 0; i < head_dim / 2; ++i)
    f.push_back(std::pow(10000.0f, -2.0f * float(i) / float(head_dim)));
  return f;
}

std::vector<float> rotate(const std::vector<float>& x, const std::vector<std::int32_t>& positions,
                          int heads, int head_dim) {
  const DeviceArray<std::int32_t> device_positions(positions);
  const DeviceArray<float> f(frequencies(head_dim));
  return test::in_every_schedule([&] {
    const DeviceArray<float> y(x);
    REQUIRE(cuda::rope({.x = y.get(),
                        .positions = device_positions.get(),
                        .inverse_frequencies = f.get(),
                        .rows = int(positions.size()),
                        .heads = heads,
                        .head_dim = head_dim},
                       nullptr) == 0);
    return y.read();
  });
}

TEST_CASE("rope agrees with float64 at any position") {
  const std::vector<std::int32_t> positions = {0, 1, 5, 1000, 131071};
  for (const auto& [heads, head_dim] : {std::pair{1, 2}, std::pair{3, 20}, std::pair{2, 128}}) {
    const auto x = test::random_floats(positions.size() * heads * head_dim, 4),
               y = rotate(x, positions, heads, head_dim);
    const auto f = frequencies(head_dim);
    const int half = head_dim / 2;
    double worst = 0;
    for (std::size_t row = 0; row < positions.size() * heads; ++row)
      for (int i = 0; i < half; ++i) {
        const double angle = float(positions[row / heads]) * f[i], a = x[row * head_dim + i],
                     b = x[row * head_dim + half + i];
        const double size = std::abs(a) + std::abs(b);
        worst = std::max(
            {worst,
             std::abs(y[row * head_dim + i] - (a * std::cos(angle) - b * std::sin(angle))) / size,
             std::abs(y[row * head_dim + half + i] - (b * std::cos(angle) + a * std::sin(angle))) /
                 size});
      }
    CHECK(worst <= 2e-6);
  }
}

std::vector<float> silu(const std::vector<float>& gate, const std::vector<float>* up) {
  const DeviceArray<float> device_up(up ? *up : gate);
  return test::in_every_schedule([&] {
    const DeviceArray<float> y(gate);
    REQUIRE(cuda::silu_mul({.gate = y.get(),
                            .up = up ? device_up.get() : nullptr,
                            .y = y.get(),
                            .count = std::int64_t(gate.size())},
                           nullptr) == 0);
    return y.read();
  });
}

TEST_CASE("silu_mul agrees with float64 and keeps infinities and NaN") {
  auto gate = test::random_floats(300, 5, 8), up = test::random_floats(300, 6);
  gate[0] = 0, gate[1] = -200, gate[2] = 200, gate[3] = -87.5f, gate[4] = kInfinity,
  gate[5] = std::nanf("");
  up[4] = 1;
  const auto y = silu(gate, &up), plain = silu(gate, nullptr);
  CHECK(y[4] == kInfinity);
  CHECK(std::isnan(y[5]));
  CHECK(std::isnan(plain[5]));
  for (std::size_t i = 0; i < gate.size(); ++i) {
    if (i == 4 || i == 5) continue;
    const double want = gate[i] / (1 + std::exp(-double(gate[i])));
    CHECK(std::abs(plain[i] - want) <= 2e-6 * std::abs(want) + 1e-35);
    CHECK(std::abs(y[i] - want * up[i]) <= 2e-6 * std::abs(want * up[i]) + 1e-35);
  }
}

TEST_CASE("axpy rounds once") {
  const auto x = test::random_floats(300, 7), before = test::random_floats(300, 8);
  const DeviceArray<float> device_x(x);
  const auto y = test::in_every_schedule([&] {
    const DeviceArray<float> y(before);
    REQUIRE(cuda::axpy({.x = device_x.get(), .y = y.get(), .count = 300, .scale = 0.3f}, nullptr) ==
            0);
    return y.read();
  });
  for (std::size_t i = 0; i < 300; ++i) CHECK(y[i] == std::fma(0.3f, x[i], before[i]));
}

TEST_CASE("convert rounds to the nearest bf16, ties to even, and keeps every bit of a float") {
  std::vector<float> from;
  const std::vector<std::pair<std::uint32_t, std::uint16_t>> special = {
      {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80},
      {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x00000001, 0},
      {0x80000000, 0x8000}, {0x7f800001, 0x7fc0}, {0xffc00000, 0xffc0}, {0x00008000, 0}};
  for (const auto& [bits, narrow] : special) from.push_back(std::bit_cast<float>(bits));
  const DeviceArray<float> device_from(from);
  const auto count = std::int64_t(from.size());
  const DeviceArray<std::uint16_t> to(std::vector<std::uint16_t>(from.size() + 1, 0xabcd));
  REQUIRE(cuda::convert(device_from.get(), to.get(), count, Dtype::bf16, nullptr) == 0);
  const auto narrow = to.read();
  for (std::size_t i = 0; i < special.size(); ++i) CHECK(narrow[i] == special[i].second);
  CHECK(narrow.back() == 0xabcd);
  const DeviceArray<float> same(from.size());
  REQUIRE(cuda::convert(device_from.get(), same.get(), count, Dtype::f32, nullptr) == 0);
  CHECK(bits_of(same.read()) == bits_of(from));
}

std::vector<float> widened(const std::vector<unsigned char>& bytes, Dtype dtype) {
  std::vector<float> values(bytes.size() / std::size_t(size_of(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t narrow;
    if (dtype == Dtype::f32)
      std::memcpy(&values[i], &bytes[i * 4], 4);
    else
      std::memcpy(&narrow, &bytes[i * 2], 2), values[i] = test::widened(narrow);
  }
  return values;
}

TEST_CASE("kv_append writes the rows it was given and no other") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const int size = 19;
    const auto k = test::random_floats(2 * size, 1), v = test::random_floats(2 * size, 2);
    const test::Kept keys(std::vector<float>(5 * size, 7), dtype),
        values(std::vector<float>(5 * size, 7), dtype);
    const test::Kept kept_k(k, dtype), kept_v(v, dtype);
    const DeviceArray<float> device_k(k), device_v(v);
    const DeviceArray<std::int32_t> rows(std::vector<std::int32_t>{4, 1});
    REQUIRE(cuda::kv_append({.k = device_k.get(),
                             .v = device_v.get(),
                             .cache_rows = rows.get(),
                             .keys = keys.data(),
                             .values = values.data(),
                             .rows = 2,
                             .row_size = size,
                             .dtype = dtype},
                            nullptr) == 0);
    const auto new_keys = widened(keys.memory.read(), dtype),
               new_values = widened(values.memory.read(), dtype);
    for (int i = 0; i < 5 * size; ++i) {
      const int row = i / size, from = row == 4 ? 0 : row == 1 ? 1 : -1;
      CHECK(new_keys[i] == (from < 0 ? 7 : kept_k.values[from * size + i % size]));
      CHECK(new_values[i] == (from < 0 ? 7 : kept_v.values[from * size + i % size]));
    }
  }
}

TEST_CASE("split_qkv has the bits of norm, rope and append one after the other") {
  for (const bool with_norm : {false, true})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const int rows = 3, heads = 3, kv_heads = 2, head_dim = 40, all = heads + 2 * kv_heads;
      const auto qkv = test::random_floats(std::size_t(rows) * all * head_dim, 1);
      const auto norm_of_q = test::random_floats(head_dim, 2),
                 norm_of_k = test::random_floats(head_dim, 3);
      const std::vector<std::int32_t> positions = {7, 0, 1234}, cache_rows = {4, 0, 2};
      std::vector<float> q, k, v;
      for (int r = 0; r < rows; ++r) {
        const auto row = part(qkv, std::size_t(r) * all * head_dim, std::size_t(all) * head_dim);
        q.insert(q.end(), row.begin(), row.begin() + heads * head_dim);
        k.insert(k.end(), row.begin() + heads * head_dim,
                 row.begin() + (heads + kv_heads) * head_dim);
        v.insert(v.end(), row.begin() + (heads + kv_heads) * head_dim, row.end());
      }
      if (with_norm) q = norm(q, norm_of_q, false), k = norm(k, norm_of_k, false);
      q = rotate(q, positions, heads, head_dim), k = rotate(k, positions, kv_heads, head_dim);
      const test::Kept kept_k(k, dtype), kept_v(v, dtype);

      const DeviceArray<float> device_qkv(qkv), q_weight(norm_of_q), k_weight(norm_of_k),
          f(frequencies(head_dim));
      const DeviceArray<std::int32_t> device_positions(positions), device_rows(cache_rows);
      const std::size_t row_size = std::size_t(kv_heads) * head_dim;
      const test::Kept keys(std::vector<float>(5 * row_size, 7), dtype),
          values(std::vector<float>(5 * row_size, 7), dtype);
      const auto got = test::in_every_schedule([&] {
        const DeviceArray<float> out(q.size());
        REQUIRE(cuda::split_qkv({.qkv = device_qkv.get(),
                                 .q_norm = with_norm ? q_weight.get() : nullptr,
                                 .k_norm = with_norm ? k_weight.get() : nullptr,
                                 .positions = device_positions.get(),
                                 .cache_rows = device_rows.get(),
                                 .inverse_frequencies = f.get(),
                                 .q = out.get(),
                                 .keys = keys.data(),
                                 .values = values.data(),
                                 .rows = rows,
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = head_dim,
                                 .eps = 1e-5f,
                                 .dtype = dtype},
                                nullptr) == 0);
        return out.read();
      });
      CHECK(bits_of(got) == bits_of(q));
      const auto new_keys = widened(keys.memory.read(), dtype),
                 new_values = widened(values.memory.read(), dtype);
      for (std::size_t r = 0; r < 3; ++r) {
        const auto at = std::size_t(cache_rows[r]) * row_size;
        CHECK(part(new_keys, at, row_size) == part(kept_k.values, r * row_size, row_size));
        CHECK(part(new_values, at, row_size) == part(kept_v.values, r * row_size, row_size));
      }
      for (const std::size_t row : {1u, 3u})
        CHECK(part(new_keys, row * row_size, row_size) == std::vector<float>(row_size, 7));
    }
}

TEST_CASE("gather_rows widens the rows it is asked for") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const test::Kept table(test::random_floats(10 * 33, 1), dtype);
    const DeviceArray<std::int32_t> ids(std::vector<std::int32_t>{9, 0, 9});
    const DeviceArray<float> y(3 * 33);
    REQUIRE(cuda::gather_rows({.table = table.data(),
                               .ids = ids.get(),
                               .y = y.get(),
                               .rows = 3,
                               .size = 33,
                               .dtype = dtype},
                              nullptr) == 0);
    const auto got = y.read();
    CHECK(part(got, 0, 33) == part(table.values, 9 * 33, 33));
    CHECK(part(got, 33, 33) == part(table.values, 0, 33));
    CHECK(part(got, 66, 33) == part(table.values, 9 * 33, 33));
  }
}

TEST_CASE("operators of no rows do nothing") {
  CHECK(cuda::rms_norm({.size = 3}, nullptr) == 0);
  CHECK(cuda::rope({.heads = 1, .head_dim = 2}, nullptr) == 0);
  CHECK(cuda::silu_mul({}, nullptr) == 0);
  CHECK(cuda::axpy({}, nullptr) == 0);
  CHECK(cuda::kv_append({.row_size = 3}, nullptr) == 0);
  CHECK(cuda::split_qkv({}, nullptr) == 0);
  CHECK(cuda::gather_rows({.size = 3}, nullptr) == 0);
  CHECK(cuda::convert(nullptr, nullptr, 0, Dtype::bf16, nullptr) == 0);
}

}  // namespace
}  // namespace dex
