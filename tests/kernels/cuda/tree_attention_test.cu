#include "kernels/tree_attention.h"

#include <algorithm>
#include <limits>

#include "tests/kernels/cuda/support.h"

namespace dex {
namespace {

using test::bits_of;
using test::part;

// A cache of random rows.
struct Cache {
  int heads, kv_heads, head_dim;
  Dtype dtype;
  test::Kept keys, values;

  Cache(int heads, int kv_heads, int head_dim, std::vector<float> keys, std::vector<float> values,
        Dtype dtype)
      : heads(heads),
        kv_heads(kv_heads),
        head_dim(head_dim),
        dtype(dtype),
        keys(std::move(keys), dtype),
        values(std::move(values), dtype) {}
  Cache(int heads, int kv_heads, int head_dim, int capacity, Dtype dtype)
      : Cache(heads, kv_heads, head_dim,
              test::random_floats(std::size_t(capacity) * kv_heads * head_dim, 1),
              test::random_floats(std::size_t(capacity) * kv_heads * head_dim, 2), dtype) {}

  std::size_t row_size() const { return std::size_t(heads) * head_dim; }
  std::vector<float> queries(int rows) const {
    return test::random_floats(std::size_t(rows) * row_size(), 3, 2);
  }
};

using Rows = test::SeenRows;

int most_keys(const Rows& rows) {
  int most = 0;
  for (int r = 0; r < rows.count(); ++r) most = std::max(most, int(rows.seen_by(r).size()));
  return most;
}

// `rows_at_once`: what the workspace is made for; 0: all.
std::vector<float> attend(const Cache& c, const Rows& rows, const std::vector<float>& q,
                          bool every_schedule = true, int more_keys = 0, int rows_at_once = 0) {
  auto whole = rows.context;
  whole.push_back(0);  // never empty
  const test::DeviceArray<std::int32_t> context(whole), context_size(rows.context_size),
      ancestors(rows.ancestors), ancestors_begin(rows.ancestors_begin);
  const test::DeviceArray<float> device_q(q);
  return test::in_schedules(every_schedule, [&] {
    const test::DeviceArray<float> out(std::vector<float>(q.size(), std::nanf("")));
    const TreeAttention p{.q = device_q.get(),
                          .keys = c.keys.data(),
                          .values = c.values.data(),
                          .context = context.get(),
                          .context_size = context_size.get(),
                          .ancestors = ancestors.get(),
                          .ancestors_begin = ancestors_begin.get(),
                          .out = out.get(),
                          .rows = rows.count(),
                          .heads = c.heads,
                          .kv_heads = c.kv_heads,
                          .head_dim = c.head_dim,
                          .scale = 1 / std::sqrt(float(c.head_dim)),
                          .dtype = c.dtype,
                          .most_keys = most_keys(rows) + more_keys};
    TreeAttention at_once = p;
    if (rows_at_once > 0) at_once.rows = rows_at_once;
    const test::Workspace workspace(cuda::tree_attention_workspace(at_once));
    REQUIRE(cuda::tree_attention(p, workspace.get(), nullptr) == 0);
    return out.read();
  });
}

void check_row(const Cache& c, const Rows& rows, const std::vector<float>& q,
               const std::vector<float>& out, int row) {
  const std::size_t begin = row * c.row_size();
  const auto want = test::attention(c.keys.values, c.values.values, &q[begin], c.heads, c.kv_heads,
                                    c.head_dim, rows.seen_by(row));
  for (std::size_t i = 0; i < want.size(); ++i)
    REQUIRE(std::abs(out[begin + i] - want[i].value) <= 1e-5 * want[i].size);
}

Rows some_rows() {
  Rows rows;
  for (int i = 0; i < 90; ++i) rows.context.push_back((i * 17) % 97);
  rows.add(90, {100});
  rows.add(90, {100, 105, 101});
  rows.add(0, {99});
  rows.add(63, {102});
  rows.add(62, {102, 103, 104});
  rows.add(1, {110, 111});
  return rows;
}

TEST_CASE("tree_attention agrees with float64 for every head size and sharing") {
  for (const auto& [heads, kv_heads, head_dim, dtype] : {std::tuple{1, 1, 2, Dtype::bf16},
                                                         {9, 3, 64, Dtype::bf16},
                                                         {4, 2, 20, Dtype::f32},
                                                         {7, 1, 20, Dtype::bf16},
                                                         {2, 2, 80, Dtype::f32},
                                                         {8, 1, 128, Dtype::bf16}}) {
    const Cache c(heads, kv_heads, head_dim, 120, dtype);
    const Rows rows = some_rows();
    const auto q = c.queries(rows.count()), out = attend(c, rows, q);
    CAPTURE(heads, kv_heads, head_dim, name_of(dtype));
    for (int r = 0; r < rows.count(); ++r) check_row(c, rows, q, out, r);
  }
}

TEST_CASE("a row attends with the same bits alone, among others and in a larger grid") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const Cache c(6, 2, 16, 120, dtype);
    const Rows rows = some_rows();
    const auto q = c.queries(rows.count()), all = attend(c, rows, q);
    CHECK(bits_of(attend(c, rows, q, false, 200)) == bits_of(all));
    for (int r = 0; r < rows.count(); ++r) {
      Rows one;
      one.context = rows.context;
      one.add(rows.context_size[r], {rows.ancestors.begin() + rows.ancestors_begin[r],
                                     rows.ancestors.begin() + rows.ancestors_begin[r + 1]});
      CHECK(bits_of(attend(c, one, part(q, r * c.row_size(), c.row_size()), false)) ==
            bits_of(part(all, r * c.row_size(), c.row_size())));
    }
  }
}

// With so many rows a block takes several, and keeps the keys they share.
TEST_CASE("rows that share a block attend with the bits they have alone") {
  const Cache c(4, 4, 8, 200, Dtype::bf16);
  Rows rows;
  for (int i = 0; i < 140; ++i) rows.context.push_back(i);
  for (int i = 0; i < 210; ++i) rows.add(i % 5 == 0 ? 130 : 70 + (i * 7) % 64, {150 + i % 50, 149});
  const auto q = c.queries(rows.count()), all = attend(c, rows, q, !gpu::kEmulated);
  for (const int r : {0, 1, 2, 3, 4, 5, 6, 7, 100, 207, 208, 209}) {
    Rows one;
    one.context = rows.context;
    one.add(rows.context_size[r], {rows.ancestors[2 * r], rows.ancestors[2 * r + 1]});
    CHECK(bits_of(attend(c, one, part(q, r * c.row_size(), c.row_size()), false)) ==
          bits_of(part(all, r * c.row_size(), c.row_size())));
    check_row(c, rows, q, all, r);
  }
}

TEST_CASE("a row attends with the same bits however many rows the workspace has room for") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const Cache c(6, 2, 20, 120, dtype);
    Rows rows;
    for (int i = 0; i < 90; ++i) rows.context.push_back((i * 17) % 97);
    for (int i = 0; i < 19; ++i) rows.add((i * 23) % 91, {100 + i % 20, 99});
    const auto q = c.queries(rows.count());
    const auto want = bits_of(attend(c, rows, q, false));
    for (const int at_once : {1, 2, 7, 9, 18}) {
      CAPTURE(name_of(dtype), at_once);
      CHECK(bits_of(attend(c, rows, q, at_once == 1, 0, at_once)) == want);
    }
  }
}

TEST_CASE("the workspace is for all rows, up to half a GiB or one row's where that is more") {
  const auto workspace = [](std::int64_t rows, std::int64_t heads, std::int64_t keys) {
    return cuda::tree_attention_workspace({.rows = int(rows),
                                           .heads = int(heads),
                                           .kv_heads = 8,
                                           .head_dim = 128,
                                           .most_keys = int(keys)});
  };
  const auto partials = [](std::size_t rows, std::size_t heads, std::size_t keys) {
    return rows * heads * (keys / 64) * (128 + 2) * 4;
  };
  constexpr std::size_t kMost = std::size_t{512} << 20;
  CHECK(workspace(1, 32, 131072) == partials(1, 32, 131072));
  CHECK(workspace(128, 32, 4096) == partials(128, 32, 4096));
  CHECK(partials(128, 64, 131072) > 8'000'000'000u);
  CHECK(workspace(128, 64, 131072) <= kMost);
  CHECK(workspace(128, 64, 131072) > kMost / 2);  // not needlessly few
  CHECK(workspace(1000, 32, 131072) <= kMost);
  CHECK(workspace(128, 128, 1 << 20) == partials(1, 128, 1 << 20));
}

TEST_CASE(
    "a key counts the same from the context and from the ancestors, and in whatever cache row it "
    "lies") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const std::size_t half = std::size_t(100) * 2 * 24;
    auto keys = test::random_floats(half, 5), values = test::random_floats(half, 6);
    std::vector<std::int32_t> order;
    for (int i = 0; i < 77; ++i) order.push_back((i * 31) % 100);
    // the same rows 100 further on, noise where they were
    const auto doubled = [&](std::vector<float> v, bool moved) {
      v.resize(2 * half, std::nanf(""));
      if (moved) std::rotate(v.begin(), v.begin() + std::ptrdiff_t(half), v.end());
      return v;
    };
    std::vector<std::uint32_t> want;
    for (const bool moved : {false, true}) {
      const Cache c(6, 2, 24, doubled(keys, moved), doubled(values, moved), dtype);
      const auto q = c.queries(1);
      auto lie = order;
      for (auto& row : lie) row += moved ? 100 : 0;
      for (const int seen : {76, 64, 40, 0}) {
        Rows rows;
        rows.context.assign(lie.begin(), lie.begin() + seen);
        rows.add(seen, {lie.begin() + seen, lie.end()});
        const auto got = bits_of(attend(c, rows, q, false));
        if (want.empty()) want = got;
        CHECK(got == want);
      }
    }
  }
}

TEST_CASE("NaN in a key, a value or a query shows in its own row") {
  const int dim = 8;
  for (const bool in_value : {false, true}) {
    auto keys = test::random_floats(80 * dim, 1), values = test::random_floats(80 * dim, 2);
    (in_value ? values : keys)[70 * dim + 3] = std::nanf("");
    const Cache c(1, 1, dim, keys, values, Dtype::f32);
    Rows rows;
    for (int i = 0; i < 80; ++i) rows.context.push_back(i);
    rows.add(75, {79});
    rows.add(70, {79});
    const auto out = attend(c, rows, c.queries(2));
    CHECK(std::isnan(out[3]));
    for (int i = 0; i < dim; ++i) CHECK_FALSE(std::isnan(out[std::size_t(dim + i)]));
  }
}

TEST_CASE("tree_attention takes more rows than a grid is high") {
  constexpr int kRows = 65537, kDim = 2, kKeys = 7, kEnd = 50;
  const Cache c(1, 1, kDim, kKeys, Dtype::f32);
  Rows rows;  // each sees one key, so it gets that key's value
  for (int r = 0; r < kRows; ++r) rows.add(0, {r % kKeys});
  const test::OnlyEnds ends(kEnd);
  const auto out = attend(c, rows, c.queries(kRows), false);
  for (int i = 0; i < 2 * kEnd; ++i) {
    const int row = i < kEnd ? i : kRows - 1 - (i - kEnd);
    CAPTURE(row);
    CHECK(bits_of(part(out, std::size_t(row) * kDim, kDim)) ==
          bits_of(part(c.values.values, std::size_t(row % kKeys) * kDim, kDim)));
  }
}

TEST_CASE("tree_attention refuses a workspace that is too small and does nothing for no rows") {
  TreeAttention p{.rows = 2, .heads = 2, .kv_heads = 1, .head_dim = 8, .most_keys = 65};
  TreeAttention one = p;
  one.rows = 1;
  CHECK(cuda::tree_attention(p, {nullptr, cuda::tree_attention_workspace(one) - 1}, nullptr) ==
        cuda::kTooSmall);
  p.rows = 0;
  CHECK(cuda::tree_attention(p, {}, nullptr) == 0);
}

}  // namespace
}  // namespace dex
