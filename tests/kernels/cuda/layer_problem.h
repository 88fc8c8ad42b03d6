// A small layer and rows of a trie, for the tests of decoder_layer.
#pragma once
#include "kernels/decoder_layer.h"
#include "tests/kernels/cuda/support.h"

namespace dex::test {

// A layer of random weights, on the device and as floats, and rows at the end of a context of
// random keys.
struct LayerProblem {
  static constexpr int kHidden = 48, kInner = 80, kHeads = 4, kKvHeads = 2, kHeadDim = 16,
                       kContext = 70, kCapacity = 90;
  static constexpr int kQ = kHeads * kHeadDim, kC = kKvHeads * kHeadDim, kQkv = kQ + 2 * kC;
  Dtype dtype, cache_dtype;
  bool with_norms;
  std::vector<float> norms[4], frequencies, keys, values, x;
  Kept qkv, out, gate, up, down;
  std::vector<float> scales;  // of the outputs of every weight, for i8
  std::vector<std::int32_t> positions, cache_rows, context, context_size, ancestors,
      ancestors_begin = {0};

  LayerProblem(Dtype dtype, bool with_norms)
      : dtype(dtype),
        cache_dtype(unquantized(dtype)),
        with_norms(with_norms),
        keys(random_floats(kCapacity * kC, 8)),
        values(random_floats(kCapacity * kC, 9)),
        x(random_floats(6 * kHidden, 10)),
        qkv(weights(kQkv * kHidden, 1, dtype), dtype),
        out(weights(kHidden * kQ, 2, dtype), dtype),
        gate(weights(kInner * kHidden, 3, dtype), dtype),
        up(weights(kInner * kHidden, 4, dtype), dtype),
        down(weights(kHidden * kInner, 5, dtype), dtype),
        scales(kQkv) {
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.002f + 1e-5f * float(i);

    for (unsigned i = 0; i < 4; ++i) norms[i] = random_floats(i < 2 ? kHidden : kHeadDim, 20 + i);
    for (int i = 0; i < kHeadDim / 2; ++i) frequencies.push_back(std::pow(10000.0f, -float(i) / 8));
    for (int i = 0; i < kContext; ++i) context.push_back((i * 11) % kContext);
    // A chain of three in one wave, a brother of its second, and two rows still inside the context.
    add(kContext, {70});
    add(kContext, {70, 71});
    add(kContext, {70, 71, 72});
    add(kContext, {70, 73});
    add(30, {74});
    add(0, {75});
  }
  static std::vector<float> weights(std::size_t count, unsigned seed, Dtype dtype) {
    return dtype == Dtype::i8 ? random_integers(count, seed, 127)
                              : random_floats(count, seed, 0.2f);
  }
  void add(int seen, const std::vector<std::int32_t>& path) {
    positions.push_back(seen + int(path.size()) - 1);
    cache_rows.push_back(path.back());
    context_size.push_back(seen);
    ancestors.insert(ancestors.end(), path.begin(), path.end());
    ancestors_begin.push_back(std::int32_t(ancestors.size()));
  }

  // The given rows in one call. Their ancestors' keys and values must be in the cache already, or
  // be among them.
  std::vector<float> run(const std::vector<int>& rows, const Kept& device_keys,
                         const Kept& device_values) const {
    std::vector<float> own;
    std::vector<std::int32_t> at, to, seen, path, begin = {0};
    for (const int r : rows) {
      own.insert(own.end(), x.begin() + r * kHidden, x.begin() + (r + 1) * kHidden);
      at.push_back(positions[r]), to.push_back(cache_rows[r]), seen.push_back(context_size[r]);
      path.insert(path.end(), ancestors.begin() + ancestors_begin[r],
                  ancestors.begin() + ancestors_begin[r + 1]);
      begin.push_back(std::int32_t(path.size()));
    }
    const DeviceArray<float> device_x(own), input_norm(norms[0]), post_norm(norms[1]),
        q_norm(norms[2]), k_norm(norms[3]), f(frequencies), device_scales(scales);
    const DeviceArray<std::int32_t> p_at(at), p_to(to), p_context(context), p_seen(seen),
        p_path(path), p_begin(begin);
    DecoderLayer p{.x = device_x.get(),
                   .input_norm = input_norm.get(),
                   .post_norm = post_norm.get(),
                   .inverse_frequencies = f.get(),
                   .positions = p_at.get(),
                   .cache_rows = p_to.get(),
                   .context = p_context.get(),
                   .context_size = p_seen.get(),
                   .ancestors = p_path.get(),
                   .ancestors_begin = p_begin.get(),
                   .most_keys = kContext + 3,
                   .keys = device_keys.data(),
                   .values = device_values.data(),
                   .rows = int(rows.size()),
                   .hidden = kHidden,
                   .intermediate = kInner,
                   .heads = kHeads,
                   .kv_heads = kKvHeads,
                   .head_dim = kHeadDim,
                   .eps = 1e-5f,
                   .attention_scale = 0.25f,
                   .dtype = dtype,
                   .cache_dtype = cache_dtype};
    p.qkv.data = qkv.data(), p.out.data = out.data(), p.gate.data = gate.data(),
    p.up.data = up.data(), p.down.data = down.data();
    if (dtype == Dtype::i8)
      for (Weight* w : {&p.qkv, &p.out, &p.gate, &p.up, &p.down}) w->scales = device_scales.get();
    if (with_norms) p.q_norm = q_norm.get(), p.k_norm = k_norm.get();
    const Workspace workspace(cuda::decoder_layer_workspace(p));
    REQUIRE(cuda::decoder_layer(p, {workspace.memory.get(), workspace.bytes - 1}, nullptr) ==
            cuda::kTooSmall);
    REQUIRE(cuda::decoder_layer(p, workspace.get(), nullptr) == 0);
    return device_x.read();
  }
  std::vector<float> all_rows() const {
    return in_every_schedule([&] {
      const Kept device_keys(keys, cache_dtype), device_values(values, cache_dtype);
      return run({0, 1, 2, 3, 4, 5}, device_keys, device_values);
    });
  }
};

}  // namespace dex::test
