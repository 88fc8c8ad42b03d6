// CUDA kernels, on the emulator, against those of the CPU.
#include "kernels/linear.h"
#include "kernels/panels.h"
#include "kernels/row_ops.h"
#include "kernels/topk_tokens.h"
#include "kernels/tree_attention.h"
#include "tests/kernels/cuda/layer_problem.h"

namespace dex {
namespace {

// A matrix as cpu::linear reads it.
std::vector<unsigned char> panels_of_rows(const std::vector<float>& values, int out, int in,
                                          Dtype dtype) {
  std::vector<unsigned char> panels(packed_elements(out, in, dtype) * size_of(dtype));
  pack_panels(test::Kept::bytes_of(values, dtype).data(), panels.data(), out, in, dtype);
  return panels;
}

TEST_CASE("weights of bytes give the CPU's bits") {
  for (const auto& [rows, in, out] : {std::tuple{1, 64, 3},
                                      {7, 67, 13},
                                      {3, 1700, 65},
                                      {20, 1100, 5},
                                      {2, 576, 9},
                                      {2, 11008, 3}}) {
    const auto x = test::random_floats(std::size_t(rows) * in, 1, 3),
               scales = test::random_floats(out, 2), bias = test::random_floats(out, 3);
    const test::Kept weight(test::random_integers(std::size_t(out) * in, 4, 127), Dtype::i8);
    const auto panels = panels_of_rows(weight.values, out, in, Dtype::i8);
    const test::DeviceArray<float> device_x(x), device_scales(scales), device_bias(bias),
        y(std::size_t(rows) * out);
    std::vector<float> want(std::size_t(rows) * out);
    Linear p;
    p.rows = rows, p.in = in, p.out = out, p.dtype = Dtype::i8;
    p.x = x.data(), p.weight = panels.data(), p.scales = scales.data(), p.bias = bias.data(),
    p.y = want.data();
    ThreadPool pool(1);
    cpu::linear(p, pool);
    p.x = device_x.get(), p.weight = weight.data(), p.scales = device_scales.get(),
    p.bias = device_bias.get(), p.y = y.get();
    const test::Workspace workspace(cuda::linear_workspace(p));
    REQUIRE(cuda::linear(p, workspace.get(), nullptr) == 0);
    CAPTURE(rows, in, out);
    CHECK(test::bits_of(y.read()) == test::bits_of(want));
  }
}

// A layer by the operators of the CPU, all rows in one call.
struct LayerOnCpu : test::LayerProblem {
  using LayerProblem::LayerProblem;

  std::vector<float> on_cpu() const {
    ThreadPool pool(1);
    const int rows = 6;
    auto h = x;
    const test::Kept k(keys, cache_dtype), v(values, cache_dtype);
    auto k_bytes = test::Kept::bytes_of(k.values, cache_dtype),
         v_bytes = test::Kept::bytes_of(v.values, cache_dtype);
    std::vector<float> normed(h.size()), all(rows * kQkv), q(rows * kQ), own_k(rows * kC),
        own_v(rows * kC), attended(rows * kQ), g(rows * kInner), u(rows * kInner);
    const auto linear = [&](const std::vector<float>& from, const test::Kept& weight,
                            std::vector<float>& to, int unit = kInputChunk) {
      Linear p;
      p.unit = unit;
      p.rows = rows, p.in = int(from.size()) / rows, p.out = int(to.size()) / rows;
      const auto panels = panels_of_rows(weight.values, p.out, p.in, dtype);
      p.x = from.data(), p.weight = panels.data(), p.y = to.data(), p.dtype = dtype;
      if (dtype == Dtype::i8) p.scales = scales.data();
      cpu::linear(p, pool);
    };
    const auto norm = [](const std::vector<float>& from, const std::vector<float>& weight,
                         std::vector<float>& to) {
      const int size = weight.size();
      cpu::rms_norm({.x = from.data(),
                     .weight = weight.data(),
                     .y = to.data(),
                     .rows = int(from.size()) / size,
                     .size = size,
                     .eps = 1e-5f});
    };
    const auto rotate = [&](std::vector<float>& t, int heads) {
      cpu::rope({.x = t.data(),
                 .positions = positions.data(),
                 .inverse_frequencies = frequencies.data(),
                 .rows = rows,
                 .heads = heads,
                 .head_dim = kHeadDim});
    };
    const auto add = [&](const std::vector<float>& from) {
      for (std::size_t i = 0; i < h.size(); ++i) h[i] += from[i];
    };
    norm(h, norms[0], normed);
    linear(normed, qkv, all);
    for (int r = 0; r < rows; ++r) {
      const auto row = all.begin() + r * kQkv;
      std::copy(row, row + kQ, q.begin() + r * kQ);
      std::copy(row + kQ, row + kQ + kC, own_k.begin() + r * kC);
      std::copy(row + kQ + kC, row + kQkv, own_v.begin() + r * kC);
    }
    if (with_norms) norm(q, norms[2], q), norm(own_k, norms[3], own_k);
    rotate(q, kHeads), rotate(own_k, kKvHeads);
    cpu::kv_append({.k = own_k.data(),
                    .v = own_v.data(),
                    .cache_rows = cache_rows.data(),
                    .keys = k_bytes.data(),
                    .values = v_bytes.data(),
                    .rows = rows,
                    .row_size = kC,
                    .dtype = cache_dtype});
    cpu::tree_attention({.q = q.data(),
                         .keys = k_bytes.data(),
                         .values = v_bytes.data(),
                         .context = context.data(),
                         .context_size = context_size.data(),
                         .ancestors = ancestors.data(),
                         .ancestors_begin = ancestors_begin.data(),
                         .out = attended.data(),
                         .rows = rows,
                         .heads = kHeads,
                         .kv_heads = kKvHeads,
                         .head_dim = kHeadDim,
                         .scale = 0.25f,
                         .dtype = cache_dtype},
                        pool);
    linear(attended, out, normed, kHeadDim);
    add(normed);
    norm(h, norms[1], normed);
    linear(normed, gate, g), linear(normed, up, u);
    cpu::silu_mul(
        {.gate = g.data(), .up = u.data(), .y = g.data(), .count = std::int64_t(g.size())});
    linear(g, down, normed, kSharedInputUnit);
    add(normed);
    return h;
  }
};

TEST_CASE("a layer agrees with the operators of the CPU") {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8})
    for (const bool with_norms : {false, true}) {
      const LayerOnCpu p(dtype, with_norms);
      const auto got = p.all_rows(), want = p.on_cpu();
      float worst = 0, largest = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        worst = std::max(worst, std::abs(got[i] - want[i]));
        largest = std::max(largest, std::abs(want[i]));
      }
      CAPTURE(name_of(dtype), with_norms, worst, largest);
      CHECK(worst <=
            // bf16: another last bit may round an activation, with i8 a key, the other way
            largest * (dtype == Dtype::f32 ? 1e-5f : 1e-2f));
    }
}

TEST_CASE("ranked tokens and hashes are the CPU's") {
  for (const int vocab : {1, 15, 16, 17, 4303}) {
    const int rows = 5, width = std::min(vocab, 3);
    auto logits = test::random_floats(std::size_t(rows) * vocab, 3, 3);
    for (float& v : logits) v = std::nearbyint(v);  // ties
    const test::DeviceArray<float> device_logits(logits);
    const test::DeviceArray<std::int32_t> tokens(std::size_t(rows) * width);
    const test::DeviceArray<std::uint64_t> hashes(rows);
    const TopkTokens p{.logits = device_logits.get(),
                       .rows = rows,
                       .vocab = vocab,
                       .width = width,
                       .tokens = tokens.get(),
                       .hashes = hashes.get()};
    const test::Workspace workspace(cuda::topk_tokens_workspace(p));
    REQUIRE(cuda::topk_tokens(p, workspace.get(), nullptr) == 0);
    std::vector<std::int32_t> cpu_tokens(std::size_t(rows) * width);
    std::vector<std::uint64_t> cpu_hashes(rows);
    ThreadPool pool(1);
    cpu::topk_tokens({.logits = logits.data(),
                      .rows = rows,
                      .vocab = vocab,
                      .width = width,
                      .tokens = cpu_tokens.data(),
                      .hashes = cpu_hashes.data()},
                     pool);
    CHECK(tokens.read() == cpu_tokens);
    CHECK(hashes.read() == cpu_hashes);
  }
}

}  // namespace
}  // namespace dex
