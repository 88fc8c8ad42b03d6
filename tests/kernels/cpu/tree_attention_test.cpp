#include "kernels/tree_attention.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/kernels/support.h"

namespace dex {
namespace {

using test::bits_of;

// A cache of random rows.
struct Cache {
  int heads, kv_heads, head_dim;
  Dtype dtype;
  test::Stored keys, values;

  Cache(int heads, int kv_heads, int head_dim, int capacity, Dtype dtype)
      : heads(heads),
        kv_heads(kv_heads),
        head_dim(head_dim),
        dtype(dtype),
        keys(test::stored(test::random_floats(std::size_t(capacity) * kv_heads * head_dim, 1),
                          dtype)),
        values(test::stored(test::random_floats(std::size_t(capacity) * kv_heads * head_dim, 2),
                            dtype)) {}

  std::size_t row_size() const { return std::size_t(heads) * head_dim; }
  std::vector<float> queries(int rows) const {
    return test::random_floats(rows * row_size(), 3, 2);
  }
};

using Rows = test::SeenRows;

std::vector<float> attend(const Cache& c, const Rows& rows, const std::vector<float>& q,
                          int threads) {
  std::vector<float> out(rows.count() * c.row_size(), std::nanf(""));
  ThreadPool pool(threads);
  cpu::tree_attention(
      {q.data(), c.keys.memory(), c.values.memory(), rows.context.data(), rows.context_size.data(),
       rows.ancestors.data(), rows.ancestors_begin.data(), out.data(), rows.count(), c.heads,
       c.kv_heads, c.head_dim, 1 / std::sqrt(float(c.head_dim)), c.dtype},
      pool);
  return out;
}

// The bits of a row in a call of its own.
std::vector<std::uint32_t> alone(const Cache& c, const Rows& rows, const std::vector<float>& q,
                                 int row) {
  Rows one;
  one.context.assign(rows.context.begin(), rows.context.begin() + rows.context_size[row]);
  one.add(rows.context_size[row], {rows.ancestors.begin() + rows.ancestors_begin[row],
                                   rows.ancestors.begin() + rows.ancestors_begin[row + 1]});
  const auto begin = q.begin() + std::ptrdiff_t(row * c.row_size());
  return bits_of(attend(c, one, {begin, begin + std::ptrdiff_t(c.row_size())}, 1));
}

void check_row(const Cache& c, const Rows& rows, const std::vector<float>& q,
               const std::vector<float>& out, int row) {
  const std::size_t begin = row * c.row_size();
  const auto want = test::attention(c.keys.values, c.values.values, &q[begin], c.heads, c.kv_heads,
                                    c.head_dim, rows.seen_by(row));
  for (std::size_t i = 0; i < want.size(); ++i)
    REQUIRE(std::abs(out[begin + i] - want[i].value) <=
            5 * test::tolerance(Dtype::f32) * want[i].size);
}

Rows some_rows() {
  Rows rows;
  for (int i = 0; i < 60; ++i) rows.context.push_back((i * 17) % 64);
  rows.add(60, {70});
  rows.add(60, {70, 75, 66});
  rows.add(0, {99});
  rows.add(33, {71});
  rows.add(1, {80, 81});
  rows.add(15, {82});
  std::vector<std::int32_t> deep;  // longer than a block of keys
  for (int i = 0; i < 45; ++i) deep.push_back(99 - (i * 7) % 40);
  rows.add(50, deep);
  // more rows than one task takes
  for (int i = 0; i < 20; ++i) rows.add(60 - i / 3, {70 + i, 75 + i});
  return rows;
}

TEST_CASE("tree_attention agrees with float64 for every head size and sharing") {
  test::on_every_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const int head_dim : {2, 8, 20, 24, 64, 72, 80, 128, 200})
        for (const auto& [heads, kv_heads] :
             {std::pair{1, 1}, std::pair{9, 3}, std::pair{4, 2}, std::pair{14, 2}}) {
          const Cache c(heads, kv_heads, head_dim, 100, dtype);
          const Rows rows = some_rows();
          const auto q = c.queries(rows.count());
          const auto out = attend(c, rows, q, 2);
          CAPTURE(head_dim, heads, kv_heads, name_of(dtype));
          for (int r = 0; r < rows.count(); ++r) check_row(c, rows, q, out, r);
        }
  });
}

TEST_CASE("a row attends with the same bits alone, among others and on any number of threads") {
  test::on_every_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const Cache c(9, 3, 64, 100, dtype);
      const Rows rows = some_rows();
      const auto q = c.queries(rows.count());
      const auto all = attend(c, rows, q, 1);
      CHECK(bits_of(attend(c, rows, q, 2)) == bits_of(all));
      CHECK(bits_of(attend(c, rows, q, 3)) == bits_of(all));
      for (int r = 0; r < rows.count(); ++r)
        CHECK(alone(c, rows, q, r) == bits_of(all.data() + r * c.row_size(), c.row_size()));
    }
  });
}

// Rows of every shape a block of keys can cut: contexts that differ within a task and branches of
// any length.
Rows random_rows(int most_context, int count, std::mt19937& random) {
  const auto below = [&](int end) { return int(random() % unsigned(end)); };
  Rows rows;
  for (int i = 0; i < most_context; ++i) rows.context.push_back(below(120));
  for (int i = 0; i < count; ++i) {
    std::vector<std::int32_t> path(1 + (i % 3 == 0 ? below(40) : below(3)));
    for (auto& key : path) key = below(120);
    rows.add(i % 5 == 4 ? 0 : i % 2 ? most_context : below(most_context + 1), path);
  }
  return rows;
}

TEST_CASE(
    "rows of any context, ancestors and number attend as float64 has it, with the bits they have "
    "alone") {
  test::on_every_target([] {
    std::mt19937 random(7);
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (int context = 0; context <= 70; ++context) {
        const int head_dim = 2 * (1 + context % 21), count = 1 + context * 17 % 40;
        const Cache c(context % 2 ? 6 : 7, context % 2 ? 2 : 1, head_dim, 120, dtype);
        const Rows rows = random_rows(context, count, random);
        const auto q = c.queries(count);
        const auto out = attend(c, rows, q, 1 + context % 3);
        CAPTURE(context, count, head_dim, name_of(dtype));
        for (int r = 0; r < count; ++r) {
          check_row(c, rows, q, out, r);
          REQUIRE(alone(c, rows, q, r) == bits_of(out.data() + r * c.row_size(), c.row_size()));
        }
      }
  });
}

TEST_CASE(
    "a key counts the same from the context and from the ancestors, and in whatever cache row it "
    "lies") {
  test::on_every_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      Cache c(6, 2, 24, 200, dtype);
      std::vector<std::int32_t> order;
      for (int i = 0; i < 77; ++i) order.push_back((i * 31) % 100);
      const auto q = c.queries(1);
      std::vector<std::uint32_t> want;
      for (const int seen : {77 - 1, 40, 16, 3, 0}) {
        Rows rows;
        rows.context.assign(order.begin(), order.begin() + seen);
        rows.add(seen, {order.begin() + seen, order.end()});
        const auto got = bits_of(attend(c, rows, q, 1));
        if (want.empty()) want = got;
        CHECK(got == want);
      }
      // The same keys, moved 100 cache rows up; what stays behind becomes noise.
      const std::size_t half = std::size_t(100) * 2 * 24;
      const auto move = [&](test::Stored& s) {
        std::copy(s.values.begin(), s.values.begin() + half, s.values.begin() + half);
        std::fill(s.values.begin(), s.values.begin() + half, std::nanf(""));
        s = test::stored(s.values, dtype);
      };
      move(c.keys);
      move(c.values);
      Rows moved;
      for (const int i : order) moved.context.push_back(i + 100);
      moved.add(76, {moved.context.back()});
      CHECK(bits_of(attend(c, moved, q, 1)) == want);
    }
  });
}

TEST_CASE("attention shows a NaN in a key it sees") {
  test::on_every_target([] {
    Cache c(2, 1, 8, 40, Dtype::f32);
    c.keys.values[5 * 8 + 3] = std::nanf("");
    Rows rows;
    for (int i = 0; i < 30; ++i) rows.context.push_back(i);
    rows.add(30, {31});
    rows.add(5, {31});
    const auto out = attend(c, rows, c.queries(2), 1);
    CHECK(std::isnan(out[0]));
    CHECK_FALSE(std::isnan(out[2 * 8]));
  });
}

TEST_CASE("attention of no rows writes nothing") {
  const Cache c(2, 1, 8, 4, Dtype::f32);
  CHECK(attend(c, Rows{}, {}, 2).empty());
}

}  // namespace
}  // namespace dex
