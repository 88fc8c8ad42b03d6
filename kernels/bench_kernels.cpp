// Times the CPU kernels beside a plain read of the same bytes. Lines: what, threads, ms, GB/s of weights, GFLOP/s.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "kernels/rank_tokens.h"
#include "kernels/row_ops.h"
#include "kernels/tree_attention.h"

namespace dex {
namespace {

std::vector<float> random_floats(std::size_t count) {
  std::minstd_rand generator(1);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(generator() % 2000) / 1000.0f - 1;
  return values;
}

double now_ms(bool own_time) {
  timespec t;
  clock_gettime(own_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

// Milliseconds of the fastest call of at least 20 and 0.2 s: what disturbs a shared machine only ever adds time. A single
// thread is timed by its own clock, which stops while another program has the core.
double milliseconds(const Workers& workers, const std::function<void(int)>& call) {
  const bool own_time = workers.threads() == 1;
  double best = 1e30;
  const double start = now_ms(false);
  for (int i = 0; i < 20 || now_ms(false) - start < 200; ++i) {
    const double before = now_ms(own_time);
    call(i);
    best = std::min(best, now_ms(own_time) - before);
  }
  return best;
}

// Several copies of a weight, so that none is still in the cache when its turn comes again.
struct Weights {
  std::vector<std::vector<char>> copies;
  Weights(std::size_t bytes) {
    const std::size_t count = std::max<std::size_t>(1, (std::size_t(96) << 20) / bytes);
    for (std::size_t i = 0; i < count; ++i) copies.emplace_back(bytes, static_cast<char>(i + 1));
  }
  const char* turn(int i) const { return copies[i % copies.size()].data(); }
};

std::uint64_t read_all(const char* bytes, std::size_t size) {
  std::uint64_t sums[8] = {};
  const auto* words = reinterpret_cast<const std::uint64_t*>(bytes);
  for (std::size_t i = 0; i + 8 <= size / 8; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
  return std::accumulate(sums, sums + 8, std::uint64_t(0));
}

void bench_read(Workers& workers, const Weights& weights, std::size_t bytes) {
  const int parts = 8 * workers.threads();
  std::atomic<std::uint64_t> sink{0};
  const double ms = milliseconds(workers, [&](int i) {
    workers.run(parts, [&](int part) { sink += read_all(weights.turn(i) + bytes / parts * part, bytes / parts); });
  });
  fmt::print("  plain read                {:9.3f} ms {:6.1f} GB/s\n", ms, double(bytes) / ms * 1e-6);
}

void bench_linear(Workers& workers, int out, int in, Dtype dtype) {
  const std::size_t bytes = std::size_t(out) * in * size_of(dtype);
  const Weights weights(bytes);
  fmt::print("linear {} x {} {}, {} thread(s)\n", out, in, name_of(dtype), workers.threads());
  bench_read(workers, weights, bytes);
  for (const int rows : {1, 2, 4, 6, 8, 16, 32, 128}) {
    const auto x = random_floats(std::size_t(rows) * in);
    std::vector<float> y(std::size_t(rows) * out);
    const double ms = milliseconds(workers, [&](int i) {
      cpu::linear({x.data(), weights.turn(i), nullptr, y.data(), rows, in, out, dtype}, workers);
    });
    fmt::print("  {:3} rows                  {:9.3f} ms {:6.1f} GB/s {:7.1f} GFLOP/s\n", rows, ms, double(bytes) / ms * 1e-6,
               2.0 * rows * out * in / ms * 1e-6);
  }
}

void bench_rank(Workers& workers, int rows) {
  const int vocab = 49152, width = 8;
  const auto logits = random_floats(std::size_t(rows) * vocab);
  std::vector<std::int32_t> tokens(rows * width);
  std::vector<float> probabilities(rows * width), gaps(rows);
  std::vector<std::uint64_t> hashes(rows);
  const double ms = milliseconds(workers, [&](int) {
    cpu::rank_tokens({logits.data(), rows, vocab, width, tokens.data(), probabilities.data(), nullptr, nullptr, nullptr,
                      gaps.data(), hashes.data(), nullptr}, workers);
  });
  fmt::print("rank_tokens {} x {}, width {}, {} thread(s): {:.1f} us a row\n", rows, vocab, width, workers.threads(),
             1000 * ms / rows);
}

void bench_attention(Workers& workers, int rows, int seen, Dtype dtype) {
  const int heads = 9, kv_heads = 3, head_dim = 64, capacity = seen + rows;
  const auto q = random_floats(std::size_t(rows) * heads * head_dim);
  const std::size_t size = std::size_t(capacity) * kv_heads * head_dim;
  std::vector<char> keys(size * size_of(dtype)), values(keys.size());
  convert(random_floats(size).data(), keys.data(), size, dtype);
  convert(random_floats(size).data(), values.data(), size, dtype);
  std::vector<std::int32_t> context(seen), context_size(rows, seen), branch(rows), branch_begin(rows + 1);
  std::iota(context.begin(), context.end(), 0);
  std::iota(branch.begin(), branch.end(), seen);
  std::iota(branch_begin.begin(), branch_begin.end(), 0);
  std::vector<float> out(q.size());
  const double ms = milliseconds(workers, [&](int) {
    cpu::tree_attention({q.data(), keys.data(), values.data(), context.data(), context_size.data(), branch.data(),
                         branch_begin.data(), out.data(), rows, heads, kv_heads, head_dim, 0.125f, dtype}, workers);
  });
  fmt::print("tree_attention {} rows x {} keys, 9/3 heads of 64, {}, {} thread(s): {:.3f} ms {:.1f} GFLOP/s\n", rows, seen,
             name_of(dtype), workers.threads(), ms, 4.0 * rows * seen * heads * head_dim / ms * 1e-6);
}

void bench_row_ops(Workers& workers) {
  const int rows = 8, size = 576, wide = 1536;
  auto x = random_floats(std::size_t(rows) * wide);
  const auto weight = random_floats(wide);
  const std::vector<std::int32_t> positions(rows, 777);
  const double norm = milliseconds(workers, [&](int) { cpu::rms_norm({x.data(), weight.data(), x.data(), rows, size, 1e-5f}); });
  const double rope = milliseconds(workers, [&](int) { cpu::rope({x.data(), positions.data(), weight.data(), rows, 9, 64}); });
  const double silu = milliseconds(workers, [&](int) { cpu::silu_multiply({x.data(), x.data(), x.data(), rows * wide}); });
  fmt::print("8 rows: rms_norm 576 {:.2f} us, rope 9 x 64 {:.2f} us, silu_multiply 1536 {:.2f} us\n", 1000 * norm,
             1000 * rope, 1000 * silu);
}

void bench_others(Workers& workers) {
  const std::function<void(int)> nothing = [](int) {};
  fmt::print("empty call, {} thread(s): {:.2f} us\n", workers.threads(),
             milliseconds(workers, [&](int) { for (int i = 0; i < 1000; ++i) workers.run(4, nothing); }));
  for (const int rows : {1, 8}) bench_rank(workers, rows);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const int rows : {1, 8, 128}) bench_attention(workers, rows, 1000, dtype);
  if (workers.threads() == 1) bench_row_ops(workers);
}

}  // namespace
}  // namespace dex

// Arguments: OUT IN for one linear alone, or "small" for no large ones.
int main(int count, char** arguments) {
  using namespace dex;
  const bool small = count == 2 && std::string(arguments[1]) == "small";
  std::vector<std::pair<int, int>> sizes = {{1536, 576}, {576, 1536}};
  if (!small) sizes.insert(sizes.end(), {{49152, 576}, {14336, 4096}});
  if (count == 3) sizes = {{std::stoi(arguments[1]), std::stoi(arguments[2])}};
  for (const int threads : {1, 2}) {
    Workers workers(threads);
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const auto& [out, in] : sizes) bench_linear(workers, out, in, dtype);
    if (count != 3) bench_others(workers);
  }
}
