// Times the CPU kernels beside a plain read of the same bytes. Lines: what, threads, ms, GB/s of weights, GFLOP/s.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
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

// Median milliseconds of a call, over at least 5 calls and 0.15 s.
double milliseconds(const std::function<void(int)>& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const auto start = Clock::now();
  while (times.size() < 5 || Clock::now() - start < std::chrono::milliseconds(150)) {
    const auto before = Clock::now();
    call(static_cast<int>(times.size()));
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - before).count());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
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
  const double ms = milliseconds([&](int i) {
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
    const double ms = milliseconds([&](int i) {
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
  const double ms = milliseconds([&](int) {
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
  const double ms = milliseconds([&](int) {
    cpu::tree_attention({q.data(), keys.data(), values.data(), context.data(), context_size.data(), branch.data(),
                         branch_begin.data(), out.data(), rows, heads, kv_heads, head_dim, 0.125f, dtype}, workers);
  });
  fmt::print("tree_attention {} rows x {} keys, 9/3 heads of 64, {}, {} thread(s): {:.3f} ms {:.1f} GFLOP/s\n", rows, seen,
             name_of(dtype), workers.threads(), ms, 4.0 * rows * seen * heads * head_dim / ms * 1e-6);
}

void bench_row_ops() {
  const int rows = 8, size = 576, wide = 1536;
  auto x = random_floats(std::size_t(rows) * wide);
  const auto weight = random_floats(wide);
  const std::vector<std::int32_t> positions(rows, 777);
  const double norm = milliseconds([&](int) { cpu::rms_norm({x.data(), weight.data(), x.data(), rows, size, 1e-5f}); });
  const double rope = milliseconds([&](int) { cpu::rope({x.data(), positions.data(), weight.data(), rows, 9, 64}); });
  const double silu = milliseconds([&](int) { cpu::silu_multiply({x.data(), x.data(), x.data(), rows * wide}); });
  fmt::print("8 rows: rms_norm 576 {:.2f} us, rope 9 x 64 {:.2f} us, silu_multiply 1536 {:.2f} us\n", 1000 * norm,
             1000 * rope, 1000 * silu);
}

}  // namespace
}  // namespace dex

int main(int count, char** arguments) {
  const bool quick = count > 1 && std::string(arguments[1]) == "--quick";
  for (const int threads : {1, 2}) {
    dex::Workers workers(threads);
    const std::function<void(int)> nothing = [](int) {};
    fmt::print("empty call, {} thread(s): {:.2f} us\n", threads,
               dex::milliseconds([&](int) { for (int i = 0; i < 1000; ++i) workers.run(4, nothing); }));
    for (const int rows : {1, 8}) dex::bench_rank(workers, rows);
    for (const auto dtype : {dex::Dtype::f32, dex::Dtype::bf16}) {
      for (const int rows : {1, 8, 128}) dex::bench_attention(workers, rows, 1000, dtype);
      for (const auto& [out, in] : {std::pair{1536, 576}, {576, 1536}, {49152, 576}, {14336, 4096}})
        if (!quick || out < 10000) dex::bench_linear(workers, out, in, dtype);
    }
  }
  dex::bench_row_ops();
}
