// Times the CPU kernels beside what the machine does at best. "of bound" is the time that the bytes
// at the read peak or the operations at the arithmetic peak would take, whichever is longer, over
// the time taken.
//   dex_kernel_bench            every kernel
//   dex_kernel_bench small      without the 4096 x 14336 linear
//   dex_kernel_bench OUT IN     one linear alone
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/program.h"
#include "kernels/huge_memory.h"
#include "kernels/linear.h"
#include "kernels/panels.h"
#include "kernels/peaks.h"
#include "kernels/row_ops.h"
#include "kernels/topk_tokens.h"
#include "kernels/tree_attention.h"

namespace dex {
namespace {

constexpr int kRows[] = {1, 2, 3, 4, 6, 8, 16, 32, 64, 128};
constexpr int kMostWeights = 1 << 30;  // of one matrix: 4 GB

std::vector<float> random_floats(std::size_t count) {
  std::minstd_rand generator(1);
  std::vector<float> values(count);
  for (float& v : values) v = float(generator() % 2000) / 1000.0f - 1;
  return values;
}

double now(bool own_time) {
  timespec t;
  clock_gettime(own_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// Seconds of the fastest call of at least 20 and 0.2 s: what disturbs a shared machine only ever
// adds time. A single thread is timed by its own clock, which stops while another program has the
// core.
double fastest(const ThreadPool& pool, const std::function<void(int)>& call) {
  const bool own_time = pool.threads() == 1;
  double best = 1e30;
  const double start = now(false);
  for (int i = 0; i < 20 || now(false) - start < 0.2; ++i) {
    const double before = now(own_time);
    call(i);
    best = std::min(best, now(own_time) - before);
  }
  return best;
}

// The threads that are measured, and their peaks.
struct Machine {
  explicit Machine(int threads) : pool(threads) {
    ReadPeak reader;
    for (int i = 0; i < 10; ++i) reader.pass(pool);
    read = reader.best();
    f32 = cpu::multiply_add_rate(pool);
    bf16 = std::max(f32, cpu::bf16_dot_rate(pool));
    fmt::print("\n== {} thread(s): reads {:.1f} GB/s; {:.1f} GFLOP/s f32, {:.1f} GFLOP/s bf16\n",
               threads, read * 1e-9, f32 * 1e-9, bf16 * 1e-9);
  }

  double arithmetic(Dtype dtype) const { return dtype == Dtype::f32 ? f32 : bf16; }

  ThreadPool pool;
  double read = 0, f32 = 0, bf16 = 0;
};

void heading(const std::string& what) {
  fmt::print("\n{:<46} {:>5} {:>11} {:>8} {:>9} {:>9}\n", what, "rows", "us", "GB/s", "GFLOP/s",
             "of bound");
}

// `bytes` that come from memory; 0 where all stays in the caches. `operations`: 0 where they do not
// count.
void report(const Machine& machine, Dtype dtype, const std::string& what, int rows, double seconds,
            double bytes, double operations) {
  const auto number = [](double value) {
    return value > 0 ? fmt::format("{:.1f}", value) : std::string("-");
  };
  const double bound = std::max(bytes / machine.read, operations / machine.arithmetic(dtype));
  fmt::print("{:<46} {:>5} {:>11.2f} {:>8} {:>9} {:>9}\n", what, rows, 1e6 * seconds,
             number(bytes / seconds * 1e-9), number(operations / seconds * 1e-9),
             bound > 0 ? fmt::format("{:.0f} %", 100 * bound / seconds) : "-");
}

// Several copies of a weight, so that none is still in the cache when its turn comes again. Every
// byte is the same: 0.0115 as a float or as bf16, since products of tiny numbers take far longer.
struct Copies {
  std::size_t bytes, count;
  HugeMemory memory;
  explicit Copies(std::size_t size)
      : bytes(size),
        count(std::max<std::size_t>(1, (std::size_t{ReadPeak::kMegabytes} << 20) / size)),
        memory(bytes * count) {
    std::memset(memory.data(), 0x3c, bytes * count);
  }
  const char* turn(int i) const { return memory.data() + bytes * (std::size_t(i) % count); }
};

void bench_linear(Machine& machine, int out, int in, Dtype dtype) {
  const auto elements = std::size_t(packed_elements(out, in, dtype));
  const Copies weights(elements * size_of(dtype));
  const std::vector<float> scales(out, 0.01f);
  const std::string what = fmt::format("linear {} x {} {}", out, in, name_of(dtype));
  for (const int rows : kRows) {
    const auto x = random_floats(std::size_t(rows) * in);
    std::vector<float> y(std::size_t(rows) * out);
    const double seconds = fastest(machine.pool, [&](int i) {
      cpu::linear({.x = x.data(),
                   .weight = weights.turn(i),
                   .y = y.data(),
                   .rows = rows,
                   .in = in,
                   .out = out,
                   .dtype = dtype,
                   .scales = dtype == Dtype::i8 ? scales.data() : nullptr},
                  machine.pool);
    });
    report(machine, dtype, what, rows, seconds, double(elements) * size_of(dtype),
           2.0 * rows * double(elements));
  }
}

struct Heads {
  int heads, kv_heads, head_dim;
};

void bench_attention(Machine& machine, Heads h, int seen, Dtype dtype) {
  const std::string what = fmt::format("tree_attention {} keys, {}/{} heads of {}, {}", seen,
                                       h.heads, h.kv_heads, h.head_dim, name_of(dtype));
  for (const int rows : kRows) {
    const std::size_t size = std::size_t(seen + rows) * h.kv_heads * h.head_dim;
    const auto q = random_floats(std::size_t(rows) * h.heads * h.head_dim);
    std::vector<char> keys(size * size_of(dtype)), values(keys.size());
    convert(random_floats(size).data(), keys.data(), std::int64_t(size), dtype);
    convert(random_floats(size).data(), values.data(), std::int64_t(size), dtype);
    std::vector<std::int32_t> context(seen), context_size(rows, seen), ancestors(rows),
        ancestors_begin(rows + 1);
    std::iota(context.begin(), context.end(), 0);
    std::iota(ancestors.begin(), ancestors.end(), seen);
    std::iota(ancestors_begin.begin(), ancestors_begin.end(), 0);
    std::vector<float> out(q.size());
    const double seconds = fastest(machine.pool, [&](int) {
      cpu::tree_attention({.q = q.data(),
                           .keys = keys.data(),
                           .values = values.data(),
                           .context = context.data(),
                           .context_size = context_size.data(),
                           .ancestors = ancestors.data(),
                           .ancestors_begin = ancestors_begin.data(),
                           .out = out.data(),
                           .rows = rows,
                           .heads = h.heads,
                           .kv_heads = h.kv_heads,
                           .head_dim = h.head_dim,
                           .scale = 0.125f,
                           .dtype = dtype},
                          machine.pool);
    });
    report(machine, Dtype::f32, what, rows, seconds, 0,
           4.0 * rows * (seen + 1) * h.heads * h.head_dim);
  }
}

void bench_rank(Machine& machine, int vocab, int width) {
  for (const int rows : kRows) {
    const auto logits = random_floats(std::size_t(rows) * vocab);
    std::vector<std::int32_t> tokens(rows * width);
    std::vector<float> probabilities(rows * width), gaps(rows);
    std::vector<std::uint64_t> hashes(rows);
    const double seconds = fastest(machine.pool, [&](int) {
      cpu::topk_tokens({.logits = logits.data(),
                        .rows = rows,
                        .vocab = vocab,
                        .width = width,
                        .tokens = tokens.data(),
                        .probabilities = probabilities.data(),
                        .gaps = gaps.data(),
                        .hashes = hashes.data()},
                       machine.pool);
    });
    report(machine, Dtype::f32, fmt::format("topk_tokens of {}, width {}", vocab, width), rows,
           seconds, 4.0 * rows * vocab, 0);
  }
}

// Seconds of one of many calls in a row: reading the clock takes as long as a few rows.
double fastest_of_many(const ThreadPool& pool, const std::function<void()>& call) {
  constexpr int kMany = 100;
  return fastest(pool,
                 [&](int) {
                   for (int i = 0; i < kMany; ++i) call();
                 }) /
         kMany;
}

// On the caller's thread, in its caches: microseconds tell, bounds do not.
void bench_row_ops(Machine& machine) {
  const int size = 576, wide = 1536, heads = 9, kv_size = 192;
  const auto weight = random_floats(wide);
  for (const int rows : kRows) {
    auto x = random_floats(std::size_t(rows) * wide);
    std::vector<float> y(x.size());
    std::vector<char> keys(std::size_t(rows) * kv_size * 4), values(keys.size());
    std::vector<std::int32_t> positions(rows), at(rows);
    std::iota(positions.begin(), positions.end(), 777);
    std::iota(at.begin(), at.end(), 0);
    const auto time = [&](const char* what, const std::function<void()>& call) {
      report(machine, Dtype::f32, what, rows, fastest_of_many(machine.pool, call), 0, 0);
    };
    time("rms_norm 576", [&] {
      cpu::rms_norm({.x = x.data(),
                     .weight = weight.data(),
                     .y = x.data(),
                     .rows = rows,
                     .size = size,
                     .eps = 1e-5f});
    });
    time("rope 9 x 64", [&] {
      cpu::rope({.x = x.data(),
                 .positions = positions.data(),
                 .inverse_frequencies = weight.data(),
                 .rows = rows,
                 .heads = heads,
                 .head_dim = 64});
    });
    // Not in place: over and over it would end among denormals.
    time("silu_mul 1536", [&] {
      cpu::silu_mul({.gate = x.data(), .up = x.data(), .y = y.data(), .count = rows * wide});
    });
    time("axpy 576", [&] {
      cpu::axpy({.x = x.data(), .y = y.data(), .count = std::int64_t{rows} * size, .scale = 1e-3f});
    });
    time("kv_append 192 bf16", [&] {
      cpu::kv_append({.k = x.data(),
                      .v = x.data(),
                      .cache_rows = at.data(),
                      .keys = keys.data(),
                      .values = values.data(),
                      .rows = rows,
                      .row_size = kv_size,
                      .dtype = Dtype::bf16});
    });
  }
}

void bench_call(Machine& machine) {
  const std::function<void(int)> nothing = [](int) {};
  report(machine, Dtype::f32, "an empty call of 4 parts", 0,
         fastest_of_many(machine.pool, [&] { machine.pool.run(4, nothing); }), 0, 0);
}

// SmolLM2-135M's (qkv, out, gate and up, down, head), then a layer's largest of an 8B model.
std::vector<std::pair<int, int>> linear_sizes(int count, char** arguments) {
  const bool small = count == 2 && std::string(arguments[1]) == "small";
  require(count == 1 || small || count == 3, ExitCode::usage,
          "wanted dex_kernel_bench [small | OUT IN]");
  if (count == 3) {
    const int out = number_argument("OUT", arguments[1], 1, kMostWeights);
    return {{out, number_argument("IN", arguments[2], 1, kMostWeights / out)}};
  }
  std::vector<std::pair<int, int>> sizes = {
      {960, 576}, {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}};
  if (!small) sizes.insert(sizes.end(), {{14336, 4096}, {4096, 14336}});
  return sizes;
}

int run(int count, char** arguments) {
  const auto sizes = linear_sizes(count, arguments);
  for (const int threads : {1, 2}) {
    Machine machine(threads);
    heading("linear OUT x IN");
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i8})
      for (const auto& [out, in] : sizes) bench_linear(machine, out, in, dtype);
    if (count == 3) continue;
    heading("attention");
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const Heads heads : {Heads{9, 3, 64}, Heads{32, 8, 128}})
        bench_attention(machine, heads, 1000, dtype);
    heading("others");
    for (const int width : {1, 8}) bench_rank(machine, 49152, width);
    bench_call(machine);
    if (threads == 1) bench_row_ops(machine);
  }
  return 0;
}

}  // namespace
}  // namespace dex

int main(int count, char** arguments) {
  return dex::run_program("dex_kernel_bench", [&] { return dex::run(count, arguments); });
}
