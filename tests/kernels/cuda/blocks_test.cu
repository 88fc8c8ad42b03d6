// What blocks of one launch do to each other, which ThreadSanitizer sees where the emulator orders
// none of them.
#include "kernels/linear.h"
#include "kernels/tree_attention.h"
#include "tests/kernels/cuda/support.h"

namespace dex {
namespace {

TEST_CASE("blocks that share a sum are ordered by their fences") {
  const int rows = 2, in = 1100, out = 5;  // a block for each part
  const test::Kept weight(test::random_integers(out * in, 1, 7), Dtype::bf16);
  const auto x = test::random_integers(rows * in, 2, 7);
  const test::DeviceArray<float> device_x(x), y(rows * out);
  Linear p;
  p.x = device_x.get(), p.weight = weight.data(), p.y = y.get(), p.rows = rows, p.in = in,
  p.out = out, p.dtype = Dtype::bf16;
  const test::Workspace workspace(cuda::linear_workspace(p));
  REQUIRE(test::with_blocks_apart([&] { return cuda::linear(p, workspace.get(), nullptr); }) == 0);
  const auto got = y.read();
  for (int i = 0; i < rows * out; ++i) {
    float sum = 0;
    for (int k = 0; k < in; ++k) sum += x[i / out * in + k] * weight.values[i % out * in + k];
    CHECK(got[i] == sum);
  }
}

TEST_CASE("blocks that attend to one row write apart") {
  const int dim = 8, positions = 100;
  const test::Kept keys(test::random_floats(positions * dim, 1), Dtype::bf16),
      values(std::vector<float>(positions * dim, 3), Dtype::bf16);
  std::vector<std::int32_t> order(positions);
  for (int i = 0; i < positions; ++i) order[i] = i;
  const test::DeviceArray<std::int32_t> context(order), context_size(std::vector<std::int32_t>{99}),
      ancestors(std::vector<std::int32_t>{99}), ancestors_begin(std::vector<std::int32_t>{0, 1});
  const test::DeviceArray<float> q(test::random_floats(dim, 3)), out(dim);
  const TreeAttention p{.q = q.get(),
                        .keys = keys.data(),
                        .values = values.data(),
                        .context = context.get(),
                        .context_size = context_size.get(),
                        .ancestors = ancestors.get(),
                        .ancestors_begin = ancestors_begin.get(),
                        .out = out.get(),
                        .rows = 1,
                        .heads = 1,
                        .kv_heads = 1,
                        .head_dim = dim,
                        .scale = 1,
                        .dtype = Dtype::bf16,
                        .most_keys = positions};
  const test::Workspace workspace(cuda::tree_attention_workspace(p));
  REQUIRE(test::with_blocks_apart(
              [&] { return cuda::tree_attention(p, workspace.get(), nullptr); }) == 0);
  for (const float v : out.read()) CHECK(v == Approx(3));
}

}  // namespace
}  // namespace dex
