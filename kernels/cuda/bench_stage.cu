// One stage of a large model with random weights through the cuda:: kernels: whether a row's bits
// depend on its company, and how its time compares with that of reading its weights. Without
// options: a stage of K = 8 of a 70B model, 10 layers in bf16.
//   gpu_stage_bench [--layers N] [--hidden N] [--intermediate N] [--heads N] [--kv-heads N]
//     [--head-dim N] [--context N]
//                   [--vocab N]
// Prints Markdown. Exit code 1 where bits differ or a call fails.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cuda/bench_device.cuh"
#include "kernels/decoder_layer.h"
#include "kernels/linear.h"
#include "kernels/topk_tokens.h"

namespace {

using namespace dex;
using namespace dex::bench;

constexpr int kMostRows = 128;
const std::vector<int> kRows = {1, 2, 4, 8, 16, 32, 64, 128};

std::map<std::string, int> sizes = {
    {"--layers", 10},  {"--hidden", 8192},  {"--intermediate", 28672}, {"--heads", 64},
    {"--kv-heads", 8}, {"--head-dim", 128}, {"--context", 1024},       {"--vocab", 128256}};

// ---- The stage

struct Stage {
  int layers = sizes["--layers"], hidden = sizes["--hidden"],
      intermediate = sizes["--intermediate"], heads = sizes["--heads"],
      kv_heads = sizes["--kv-heads"], head_dim = sizes["--head-dim"], context = sizes["--context"];
  int q_size = heads * head_dim, kv_size = kv_heads * head_dim;
  std::vector<std::vector<Memory>> weights;
  Memory ones = random_memory<float>(std::size_t(hidden), 0.1f, 1),
         x = allocate(bytes_of_x(kMostRows)),
         start = random_memory<float>(std::size_t(kMostRows) * std::size_t(hidden), 1);
  Memory frequencies, positions, cache_rows, context_rows, context_size, ancestors, ancestors_begin,
      workspace;
  std::size_t workspace_bytes = 0;

  Stage() {
    for (int layer = 0; layer < layers; ++layer) {
      std::vector<Memory> w;
      for (const auto& [out, in] : matrices())
        w.push_back(random_memory<gpu::bf16>(std::size_t(out) * std::size_t(in),
                                             1.7f / std::sqrt(float(in))));
      for (int i = 0; i < 2; ++i)
        w.push_back(
            random_memory<gpu::bf16>(std::size_t(context + kMostRows) * std::size_t(kv_size), 1));
      weights.push_back(std::move(w));
    }
    std::vector<float> f;
    for (int i = 0; i < head_dim / 2; ++i)
      f.push_back(std::pow(500000.0f, -2.0f * float(i) / float(head_dim)));
    std::vector<std::int32_t> all(context + kMostRows), begin(kMostRows + 1);
    std::iota(all.begin(), all.end(), 0);
    std::iota(begin.begin(), begin.end(), 0);
    frequencies = on_device(f);
    context_rows = on_device(all);
    cache_rows =
        // brothers: each sees the context and itself
        on_device(std::vector<std::int32_t>(all.end() - kMostRows, all.end()));
    ancestors = on_device(std::vector<std::int32_t>(all.end() - kMostRows, all.end()));
    positions = on_device(std::vector<std::int32_t>(kMostRows, context));
    context_size = on_device(std::vector<std::int32_t>(kMostRows, context));
    ancestors_begin = on_device(begin);
    workspace_bytes = cuda::decoder_layer_workspace(layer_of(0, 0, kMostRows));
    workspace = allocate(workspace_bytes);
  }

  std::vector<std::pair<int, int>> matrices() const {  // (out, in)
    return {{q_size + 2 * kv_size, hidden},
            {hidden, q_size},
            {intermediate, hidden},
            {intermediate, hidden},
            {hidden, intermediate}};
  }
  std::size_t bytes_of_x(int rows) const { return std::size_t(rows) * std::size_t(hidden) * 4; }
  double weight_bytes() const {
    double bytes = 0;
    for (const auto& [out, in] : matrices()) bytes += 2.0 * layers * out * in;
    return bytes;
  }
  double cache_bytes() const { return 4.0 * layers * context * kv_size; }

  DecoderLayer layer_of(int layer, int first, int rows) const {
    const auto at = [first](const Memory& m) {
      return static_cast<std::int32_t*>(m.get()) + first;
    };
    DecoderLayer p;
    p.x = static_cast<float*>(x.get()),
    p.input_norm = p.post_norm = static_cast<float*>(ones.get());
    if (!weights.empty()) {
      const auto& w = weights[layer];
      p.qkv.data = w[0].get(), p.out.data = w[1].get(), p.gate.data = w[2].get(),
      p.up.data = w[3].get(), p.down.data = w[4].get();
      p.keys = w[5].get(), p.values = w[6].get();
    }
    p.inverse_frequencies = static_cast<float*>(frequencies.get());
    p.positions = at(positions), p.cache_rows = at(cache_rows),
    p.context = at(context_rows) - first, p.context_size = at(context_size);
    p.ancestors = at(ancestors) - first, p.ancestors_begin = at(ancestors_begin),
    p.most_keys = context + 1;
    p.rows = rows, p.hidden = hidden, p.intermediate = intermediate, p.heads = heads,
    p.kv_heads = kv_heads, p.head_dim = head_dim;
    p.eps = 1e-5f, p.attention_scale = 1 / std::sqrt(float(p.head_dim)),
    p.dtype = p.cache_dtype = Dtype::bf16;
    return p;
  }

  // Rows first .. first + rows of `start` through all layers.
  void forward(int first, int rows, cudaStream_t stream) const {
    const char* from = static_cast<const char*>(start.get()) + bytes_of_x(first);
    gpu::check(cudaMemcpyAsync(x.get(), from, bytes_of_x(rows), cudaMemcpyDeviceToDevice, stream));
    for (int layer = 0; layer < layers; ++layer)
      require_started(cuda::decoder_layer(layer_of(layer, first, rows),
                                          {workspace.get(), workspace_bytes}, stream));
  }
  std::vector<std::uint32_t> bits(int first, int rows, cudaStream_t stream) const {
    forward(first, rows, stream);
    gpu::check(cudaStreamSynchronize(stream));
    std::vector<std::uint32_t> result(bytes_of_x(rows) / 4);
    gpu::copy_to_host(result.data(), x.get(), bytes_of_x(rows));
    return result;
  }
};

// ---- The report

void check_rows(const Stage& stage, cudaStream_t stream) {
  const auto all = stage.bits(0, kMostRows, stream);
  require(std::none_of(all.begin(), all.end(),
                       [](std::uint32_t b) { return (b & 0x7f800000u) == 0x7f800000u; }),
          "the stage gives infinity or NaN");
  require(stage.bits(0, kMostRows, stream) == all, "128 rows give other bits the second time");
  const auto hidden = std::size_t(stage.hidden);
  for (int rows = 1; rows < kMostRows; rows += rows < 40 ? 1 : 11) {
    const int first = rows * 37 % (kMostRows + 1 - rows);
    const auto some = stage.bits(first, rows, stream);
    require(
        std::memcmp(some.data(), all.data() + std::size_t(first) * hidden, some.size() * 4) == 0,
        std::to_string(rows) + " rows from row " + std::to_string(first) +
            " give other bits than among 128");
  }
  std::printf(
      "Rows: the same bits in companies of 1 .. 40 and more, at varying places, as among 128.\n\n");
}

void report_stage(const Stage& stage, Bandwidth peak, cudaStream_t stream) {
  const double bytes = stage.weight_bytes() + stage.cache_bytes();
  std::printf(
      "| rows | stage ms | GB/s | of copy | of read | TFLOP/s |\n|---|---|---|---|---|---|\n");
  for (const int rows : kRows) {
    const double ms = graph_milliseconds(stream, [&] { stage.forward(0, rows, stream); });
    const double rate = 1e-6 * bytes / ms;
    std::printf("| %d | %.3f | %.0f | %.0f %% | %.0f %% | %.1f |\n", rows, ms, rate,
                100 * rate / peak.copy, 100 * rate / peak.read,
                1e-9 * stage.weight_bytes() * rows / ms);
  }
  std::printf("\n");
}

// Matrices larger than the second cache, each alone; and the ranking of a whole vocabulary.
void report_operators(const Stage& stage, Bandwidth peak, cudaStream_t stream) {
  const Memory in = random_memory<float>(
      std::size_t(kMostRows) * std::size_t(std::max(stage.intermediate, stage.hidden)), 1);
  std::printf("| linear, out x in | rows | us | of read |\n|---|---|---|---|\n");
  const Memory y = allocate(
      std::size_t(kMostRows) *
      std::size_t(std::max({stage.intermediate, stage.hidden, stage.q_size + 2 * stage.kv_size})) *
      4);
  for (const std::size_t which : {0u, 1u, 2u, 4u})
    for (const int rows : {1, 8, 32, 128}) {
      const auto [out, width] = stage.matrices()[which];
      std::size_t layer = 0;
      // every layer's in turn: the second cache would hold a small one
      const double ms =
          graph_milliseconds(stream,
                             [&] {
                               for (layer = 0; layer < stage.weights.size(); ++layer) {
                                 Linear p;
                                 p.x = static_cast<float*>(in.get()),
                                 p.weight = stage.weights[layer][which].get(),
                                 p.y = static_cast<float*>(y.get());
                                 p.rows = rows, p.in = width, p.out = out, p.dtype = Dtype::bf16;
                                 require_started(cuda::linear(
                                     p, {stage.workspace.get(), stage.workspace_bytes}, stream));
                               }
                             }) /
          stage.layers;
      std::printf("| %d x %d | %d | %.1f | %.0f %% |\n", out, width, rows, 1e3 * ms,
                  100 * 2e-6 * out * width / ms / peak.read);
    }
  const int vocab = sizes["--vocab"];
  const Memory logits = random_memory<float>(std::size_t(kMostRows) * std::size_t(vocab), 9),
               answers = allocate(kMostRows * 64);
  std::printf("\n| ranking 8 of %d, with hash | us |\n|---|---|\n", vocab);
  for (const int rows : {1, 8, 128}) {
    char* to = static_cast<char*>(answers.get());
    TopkTokens p;
    p.logits = static_cast<float*>(logits.get()), p.rows = rows, p.vocab = vocab,
    p.width = std::min(8, vocab);
    p.hashes = reinterpret_cast<std::uint64_t*>(to),
    p.tokens = reinterpret_cast<std::int32_t*>(to + kMostRows * 8);
    const std::size_t bytes = cuda::topk_tokens_workspace(p);
    const Memory workspace = allocate(bytes);
    const double ms = graph_milliseconds(
        stream, [&] { require_started(cuda::topk_tokens(p, {workspace.get(), bytes}, stream)); });
    std::printf("| %d | %.1f |\n", rows, 1e3 * ms);
  }
}

void run(int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    require(sizes.count(argv[i]) == 1 && i + 1 < argc && std::atoi(argv[i + 1]) > 0,
            std::string("not understood: ") + argv[i]);
    sizes[argv[i]] = std::atoi(argv[i + 1]);
  }
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  require(error == cudaSuccess && devices > 0,
          std::string("no GPU: ") +
              (error != cudaSuccess ? cudaGetErrorString(error) : "none is listed"));
  cudaDeviceProp device;
  gpu::check(cudaGetDeviceProperties(&device, 0));
  std::size_t free = 0, total = 0;
  gpu::check(cudaMemGetInfo(&free, &total));
  const double per_layer =
      2.0 * sizes["--hidden"] *
      (3.0 * sizes["--intermediate"] +
       (2.0 * sizes["--heads"] + 2.0 * sizes["--kv-heads"]) * sizes["--head-dim"]);
  const double wanted = per_layer * sizes["--layers"] + 4e9;
  require(double(free) >= wanted, "the stage wants " + std::to_string(int(wanted / 1e9)) +
                                      " GB, of the GPU " + std::to_string(free / 1000000000) +
                                      " GB are free: use --layers");
  cudaStream_t stream;
  gpu::check(cudaStreamCreate(&stream));
  const Bandwidth peak = measured_bandwidth(stream);
  const Stage stage;
  gpu::synchronize();
  std::printf(
      "GPU: %s, %d multiprocessors, %.0f GB. Copy %.0f GB/s (read + write), plain read %.0f "
      "GB/s.\n\n",
      device.name, device.multiProcessorCount, double(device.totalGlobalMem) / 1e9, peak.copy,
      peak.read);
  std::printf(
      "Stage: %d layers, hidden %d, intermediate %d, %d / %d heads of %d, bf16, context %d: %.2f "
      "GB of weights, %.2f GB of "
      "keys and values.\n\n",
      stage.layers, stage.hidden, stage.intermediate, stage.heads, stage.kv_heads, stage.head_dim,
      stage.context, stage.weight_bytes() / 1e9, stage.cache_bytes() / 1e9);
  std::fflush(stdout);
  check_rows(stage, stream);
  report_stage(stage, peak, stream);
  report_operators(stage, peak, stream);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "gpu_stage_bench: %s\n", error.what());
    return 1;
  }
}
