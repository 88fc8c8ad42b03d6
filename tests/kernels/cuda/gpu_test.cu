// Every primitive against what CUDA's and PTX's manuals say of it, spelled out on the host.
#include "kernels/cuda/gpu.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "tests/kernels/cuda/schedules.h"

using namespace dex;
using namespace dex::test;
using gpu::bf16;

namespace {

constexpr unsigned kAll = 0xffffffffu;

// The results of a kernel of one block: `each` values a thread, at out[thread + threads * i].
template <class T>
std::vector<T> run_block(void (*kernel)(T*), unsigned threads, std::size_t each, std::size_t dynamic_shared = 0) {
  return in_every_schedule([=] {
    const DeviceArray<T> out(std::vector<T>(threads * each, T{}));
    require_launched(gpu::launch(kernel, 1, threads, dynamic_shared, nullptr, out.get()));
    return out.read();
  });
}

__global__ void shuffles(int* out) {
  const int n = static_cast<int>(threadIdx.x), lane = n % 32;
  const int value = 100 + n;
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  int i = 0;
  out[n + 64 * i++] = __shfl_sync(kAll, value, 5);
  out[n + 64 * i++] = __shfl_sync(kAll, value, lane + 9, 8);
  out[n + 64 * i++] = __shfl_up_sync(kAll, value, 3);
  out[n + 64 * i++] = __shfl_up_sync(kAll, value, 3, 16);
  out[n + 64 * i++] = __shfl_down_sync(kAll, value, 5);
  out[n + 64 * i++] = __shfl_down_sync(kAll, value, 5, 8);
  out[n + 64 * i++] = __shfl_xor_sync(kAll, value, 17);
  out[n + 64 * i++] = __shfl_xor_sync(kAll, value, 5, 4);
  out[n + 64 * i++] = __shfl_xor_sync(half, value, 7);
  out[n + 64 * i++] = static_cast<int>(__shfl_sync(kAll, static_cast<double>(value) * 4294967296.0, 31) / 4294967296.0);
}

__global__ void votes(unsigned* out) {
  const unsigned n = threadIdx.x, lane = n % 32;
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  out[n] = __ballot_sync(kAll, lane % 3 == 0);
  out[n + 64] = __ballot_sync(half, lane % 3 == 0);
  out[n + 128] = static_cast<unsigned>(__any_sync(kAll, n == 40) * 2 + __all_sync(kAll, n != 40));
  out[n + 192] = static_cast<unsigned>(__syncthreads_count(n < 50));
  out[n + 256] = static_cast<unsigned>((__syncthreads_or(n == 3) != 0) * 4 + (__syncthreads_or(n == 99) != 0) * 2 +
                                       (__syncthreads_and(n < 64) != 0));
  out[n + 320] = static_cast<unsigned>((__syncthreads_and(n != 63) != 0) * 8) + __reduce_add_sync(kAll, lane);
  out[n + 384] = __reduce_max_sync(half, n) * 100 + __reduce_min_sync(half, n);
  out[n + 448] = static_cast<unsigned>(__reduce_max_sync(kAll, static_cast<int>(lane) - 40) + 1000 +
                                       __reduce_min_sync(kAll, static_cast<int>(lane) - 40));
}

// Lanes that exited may be named in a mask; the last warp of a block may have few lanes.
__global__ void votes_of_the_living(unsigned* out) {
  if (threadIdx.x % 32 >= 20) return;
  out[threadIdx.x] = __ballot_sync(kAll, 1);
}

__global__ void atomics(int* sums, float* float_sum, unsigned long long* best) {
  const int n = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&sums[0], n);
  atomicMax(&sums[1], n * 37 % 101);
  atomicMin(&sums[2], n * 37 % 101 - 7);
  atomicAdd(reinterpret_cast<unsigned*>(&sums[3]), 1u);
  if (atomicExch(&sums[4], 1) == 0) sums[5] = 7;
  int seen = 0;
  for (int before; (before = atomicCAS(&sums[6], seen, seen + 2)) != seen;) seen = before;
  atomicAdd(float_sum, 0.5f);
  atomicMax(best, static_cast<unsigned long long>(n * 37 % 101) << 32 | static_cast<unsigned>(n));
}

__global__ void integer_functions(int* out) {
  const int v = static_cast<int>(threadIdx.x * 2654435761u >> (threadIdx.x % 32));
  const unsigned u = static_cast<unsigned>(v);
  const unsigned n = threadIdx.x;
  out[n] = __popc(u) + 100 * __ffs(v) + 10000 * __clz(v);
  out[n + 64] = __popcll(~0ull << (v & 31)) + 100 * __ffsll(v) + 10000 * __clzll(v);
  out[n + 128] = static_cast<int>(__umulhi(u, 0xdeadbeefu));
  out[n + 192] = __float_as_int(__uint_as_float(u & 0x3fffffffu)) + static_cast<int>(__float_as_uint(__int_as_float(5)));
  out[n + 256] = min(v, 1000) + max(v % 7, 3) + __ldg(&out[n + 256]);
}

__global__ void conversions(const float* x, std::uint16_t* y, float* back, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  y[i] = gpu::to_bf16(x[i]).u;
  back[i] = gpu::to_float(bf16{y[i]});
}

// out = A B: A (16, 16) and B by columns (8, 16), in bf16; then the same fragments by ldmatrix.
__global__ void multiply_bf16(const bf16* a, const bf16* b, float* out) {
  SHARED(bf16[16][16], a_tile);
  SHARED(bf16[16][16], b_tile);
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  for (int i = lane; i < 256; i += 32) a_tile[i / 16][i % 16] = a[i];
  for (int i = lane; i < 256; i += 32) b_tile[i / 16][i % 16] = i < 128 ? b[i] : bf16{0};
  __syncwarp();
  const auto pair = [](const bf16* at) { return at[0].u | static_cast<std::uint32_t>(at[1].u) << 16; };
  const std::uint32_t by_hand[4] = {pair(a + 16 * g + 2 * t), pair(a + 16 * (g + 8) + 2 * t), pair(a + 16 * g + 2 * t + 8),
                                    pair(a + 16 * (g + 8) + 2 * t + 8)};
  const std::uint32_t column[2] = {pair(b + 16 * g + 2 * t), pair(b + 16 * g + 2 * t + 8)};
  float d[4] = {1, 2, 3, 4};
  gpu::mma_16x8x16(d, by_hand, column);

  std::uint32_t af[4], bf[4];
  gpu::ldmatrix_x4(af, &a_tile[lane % 16][lane / 16 * 8]);
  gpu::ldmatrix_x4(bf, &b_tile[lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
  const std::uint32_t loaded[2] = {bf[0], bf[1]};
  float e[4] = {1, 2, 3, 4};
  gpu::mma_16x8x16(e, af, loaded);
  for (int r = 0; r < 4; ++r) {
    const int at = (g + r / 2 * 8) * 8 + 2 * t + r % 2;
    out[at] = d[r];
    out[128 + at] = e[r];
  }
}

__global__ void transpose(std::uint16_t* out) {
  SHARED(std::uint16_t[4][8][8], matrices);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 8; ++i) matrices[lane / 8][lane % 8][i] = static_cast<std::uint16_t>(100 * (lane / 8) + 10 * (lane % 8) + i);
  __syncwarp();
  std::uint32_t r[4];
  gpu::ldmatrix_x4_transposed(r, matrices[lane / 8][lane % 8]);
  for (int j = 0; j < 4; ++j)
    for (int half = 0; half < 2; ++half)  // row g of the transpose, columns 2t, 2t+1
      out[64 * j + 8 * (lane / 4) + 2 * (lane % 4) + half] = static_cast<std::uint16_t>(r[j] >> 16 * half);
}

// A (16, 32) and B by columns (8, 32), in signed bytes.
__global__ void multiply_s8(const signed char* a, const signed char* b, int* out) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  const auto four = [](const signed char* at) { return *reinterpret_cast<const std::uint32_t*>(at); };
  const std::uint32_t af[4] = {four(a + 32 * g + 4 * t), four(a + 32 * (g + 8) + 4 * t), four(a + 32 * g + 4 * t + 16),
                               four(a + 32 * (g + 8) + 4 * t + 16)};
  const std::uint32_t bf[2] = {four(b + 32 * g + 4 * t), four(b + 32 * g + 4 * t + 16)};
  std::int32_t d[4] = {10, 20, 30, 40};
  gpu::mma_s8_16x8x32(d, af, bf);
  for (int r = 0; r < 4; ++r) out[(g + r / 2 * 8) * 8 + 2 * t + r % 2] = d[r];
}

// Sums rows of x, 256 floats each, through a ring of three slots; rows past the end come as zeros.
__global__ void sum_through_ring(const float* x, float* out, int rows) {
  constexpr int kSlots = 3;
  DYN_SHARED(float, ring);
  const int n = static_cast<int>(threadIdx.x);
  const auto fetch = [&](int row) {
    gpu::cp_async16(ring + row % kSlots * 256 + 4 * n, x + (row < rows ? row : 0) * 256 + 4 * n, row < rows);
    gpu::cp_async_commit();
  };
  for (int row = 0; row < kSlots - 1; ++row) fetch(row);
  float sum = 0;
  for (int row = 0; row < rows; ++row) {
    gpu::cp_async_wait<kSlots - 2>();
    __syncthreads();
    fetch(row + kSlots - 1);
    UNROLL for (int i = 0; i < 4; ++i) sum += ring[row % kSlots * 256 + (4 * n + 64 * i + i) % 256];
  }
  gpu::cp_async_wait<0>();
  out[n] = sum + ring[rows % kSlots * 256 + 4 * n];
}

// Two warps fill a buffer, two others empty it: each side waits only where it must.
__global__ void produce_and_consume(int* out) {
  SHARED(int[2][64], buffer);
  const int n = static_cast<int>(threadIdx.x), half = n % 64;
  constexpr int kFull = 1, kEmpty = 3, kRounds = 6;
  for (int round = 0; round < kRounds; ++round) {
    const int slot = round % 2;
    if (n < 64) {
      if (round >= 2) gpu::bar_sync(kEmpty + slot, 128);
      buffer[slot][half] = 1000 * round + half;
      gpu::bar_arrive(kFull + slot, 128);
    } else {
      gpu::bar_sync(kFull + slot, 128);
      out[64 * round + half] = buffer[slot][63 - half];
      if (round + 2 < kRounds) gpu::bar_arrive(kEmpty + slot, 128);
    }
  }
}

__global__ void places(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;
}

// Each thread of a block adds in another order by barriers only; every block has its own shared memory.
__global__ void block_sums(const float* x, float* out, float* mean_square, int size) {
  SHARED(float[128], part);
  SHARED(float4[2], ends);
  const int n = static_cast<int>(threadIdx.x);
  x += static_cast<std::ptrdiff_t>(blockIdx.x) * size;
  float sum = 0;
  for (int i = n; i < size; i += 128) sum = fmaf(x[i], x[i], sum);
  part[n] = sum;
  __syncthreads();
  for (int step = 64; step > 0; step /= 2) {
    if (n < step) part[n] += part[n + step];
    __syncthreads();
  }
  if (n < 2) ends[n] = make_float4(x[0], x[size - 1], part[0], static_cast<float>(n));
  __syncthreads();
  if (n == 0) mean_square[blockIdx.x] = ends[1].z / static_cast<float>(size) + ends[1].w - ends[0].w;
  out[blockIdx.x * 128 + threadIdx.x] = part[0];
}

// Each block sums its part; the last to finish adds the parts up.
__global__ void sum_over_blocks(const float* x, float* parts, unsigned* finished, float* out) {
  SHARED(bool, last);
  const unsigned n = threadIdx.x;
  float part = x[blockIdx.x * 32 + n];
  for (int step = 16; step > 0; step /= 2) part += __shfl_down_sync(kAll, part, static_cast<unsigned>(step));
  if (n == 0) {
    parts[blockIdx.x] = part;
    __threadfence();
    last = atomicAdd(finished, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (last && n == 0)
    for (unsigned i = 0; i < gridDim.x; ++i) *out += parts[i];
}

std::vector<float> small_integers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % 17) - 8);
  return values;
}

}  // namespace

TEST_CASE("shuffles") {
  const auto out = run_block<int>(shuffles, 64, 10);
  for (int n = 0; n < 64; ++n) {
    const int warp = n / 32 * 32, lane = n % 32;
    const auto from = [&](int source) { return 100 + warp + source; };
    const int wanted[] = {from(5),
                          from(lane / 8 * 8 + (lane + 9) % 8),
                          from(lane < 3 ? lane : lane - 3),
                          from(lane % 16 < 3 ? lane : lane - 3),
                          from(lane + 5 > 31 ? lane : lane + 5),
                          from(lane % 8 + 5 > 7 ? lane : lane + 5),
                          from(lane ^ 17),
                          from((lane ^ 5) > (lane | 3) ? lane : lane ^ 5),
                          from(lane ^ 7),
                          from(31)};
    for (int i = 0; i < 10; ++i) {
      INFO("thread " << n << ", shuffle " << i);
      CHECK(out[static_cast<std::size_t>(n + 64 * i)] == wanted[i]);
    }
  }
}

TEST_CASE("votes, counts and reductions") {
  const auto out = run_block<unsigned>(votes, 64, 8);
  unsigned thirds = 0;
  for (unsigned lane = 0; lane < 32; lane += 3) thirds |= 1u << lane;
  for (unsigned n = 0; n < 64; ++n) {
    const unsigned lane = n % 32, first = n / 16 * 16, half = lane < 16 ? 0xffffu : 0xffff0000u;
    CHECK(out[n] == thirds);
    CHECK(out[n + 64] == (thirds & half));
    CHECK(out[n + 128] == (n < 32 ? 1u : 2u));
    CHECK(out[n + 192] == 50);
    CHECK(out[n + 256] == 5);
    CHECK(out[n + 320] == 31 * 16);
    CHECK(out[n + 384] == (first + 15) * 100 + first);
    CHECK(out[n + 448] == 1000 - 9 - 40);
  }
}

TEST_CASE("a mask may name lanes that exited and lanes a block does not have") {
  const auto out = run_block<unsigned>(votes_of_the_living, 74, 1);
  for (unsigned n = 0; n < 74; ++n)
    CHECK(out[n] == (n % 32 >= 20 ? 0 : n < 64 ? 0xfffffu : 0x3ffu));
}

TEST_CASE("atomics") {
  const auto out = in_every_schedule([] {
    const DeviceArray<int> sums(std::vector<int>(7));
    const DeviceArray<float> float_sum(std::vector<float>(1));
    const DeviceArray<unsigned long long> best(std::vector<unsigned long long>(1));
    require_launched(gpu::launch(atomics, 3, 96, 0, nullptr, sums.get(), float_sum.get(), best.get()));
    auto all = sums.read();
    all.push_back(static_cast<int>(float_sum.read()[0] * 2));
    all.push_back(static_cast<int>(best.read()[0] >> 32));
    all.push_back(static_cast<int>(best.read()[0] & 0xffffffffu));
    return all;
  });
  // 37 n mod 101 is 100 for n = 30 and every 101 later: the last of them is 232.
  CHECK(out == std::vector<int>{288 * 287 / 2, 100, -7, 288, 1, 7, 576, 288, 100, 232});
}

TEST_CASE("integer functions") {
  const auto out = run_block<int>(integer_functions, 64, 5);
  for (unsigned n = 0; n < 64; ++n) {
    const int v = static_cast<int>(n * 2654435761u >> (n % 32));
    const auto u = static_cast<unsigned>(v);
    int ones = 0, lowest = 0, zeros = 32, zeros64 = 64;
    for (int bit = 31; bit >= 0; --bit)
      if (u >> bit & 1) ++ones, lowest = bit + 1;
    for (int bit = 0; bit < 32; ++bit)
      if (u >> bit & 1) zeros = 31 - bit, zeros64 = 63 - bit;
    if (v < 0) zeros64 = 0;
    CHECK(out[n] == ones + 100 * lowest + 10000 * zeros);
    CHECK(out[n + 64] == 64 - (v & 31) + 100 * lowest + 10000 * zeros64);
    CHECK(out[n + 128] == static_cast<int>(std::uint64_t{u} * 0xdeadbeefu >> 32));
    CHECK(out[n + 192] == static_cast<int>(u & 0x3fffffffu) + 5);
    CHECK(out[n + 256] == std::min(v, 1000) + std::max(v % 7, 3));
  }
}

TEST_CASE("bf16 rounds to nearest even and keeps NaN") {
  std::vector<float> x = {0.0f, -0.0f, 1.0f, INFINITY, -INFINITY, 3.4028235e38f, 1e-45f, -1e-40f};
  for (std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
    for (std::uint32_t high : {0x3f80u, 0x3f81u, 0xbf81u, 0x0000u, 0x0001u, 0x7f7fu, 0x7f80u, 0xffc0u, 0x7fbfu})
      x.push_back(gpu::bits_as<float>(high << 16 | low));
  std::vector<float> back;
  const auto y = in_every_schedule([&] {
    const DeviceArray<float> from(x), wide(x.size());
    const DeviceArray<std::uint16_t> to(x.size());
    require_launched(gpu::launch(conversions, 1, 64, 0, nullptr, from.get(), to.get(), wide.get(), static_cast<int>(x.size())));
    back = wide.read();
    return to.read();
  });
  for (std::size_t i = 0; i < x.size() && i < 64; ++i) {
    const auto bits = gpu::bits_as<std::uint32_t>(x[i]);
    const std::uint32_t low = bits & 0xffff, high = bits >> 16;
    const bool up = low > 0x8000 || (low == 0x8000 && (high & 1) != 0);
    CHECK(y[i] == (std::isnan(x[i]) ? (high | 0x40) : high + (up ? 1 : 0)));
    CHECK(gpu::bits_as<std::uint32_t>(back[i]) == std::uint32_t{y[i]} << 16);
  }
}

TEST_CASE("mma and ldmatrix of bf16, with sums that any order makes exact") {
  const auto a = small_integers(256, 1), b = small_integers(128, 2);
  const auto narrow = [](const std::vector<float>& wide) {
    std::vector<bf16> values;
    for (float v : wide) values.push_back(gpu::to_bf16(v));
    return values;
  };
  const auto out = in_every_schedule([&] {
    const DeviceArray<bf16> from_a(narrow(a)), from_b(narrow(b));
    const DeviceArray<float> to(256);
    require_launched(gpu::launch(multiply_bf16, 1, 32, 0, nullptr, from_a.get(), from_b.get(), to.get()));
    return to.read();
  });
  for (std::size_t m = 0; m < 16; ++m)
    for (std::size_t n = 0; n < 8; ++n) {
      float wanted = static_cast<float>(1 + m / 8 * 2 + n % 2);
      for (std::size_t k = 0; k < 16; ++k) wanted += a[16 * m + k] * b[16 * n + k];
      CHECK(out[8 * m + n] == wanted);
      CHECK(out[128 + 8 * m + n] == wanted);
    }
}

TEST_CASE("ldmatrix transposes") {
  const auto out = run_block<std::uint16_t>(transpose, 32, 8);
  for (std::size_t j = 0; j < 4; ++j)
    for (std::size_t row = 0; row < 8; ++row)
      for (std::size_t column = 0; column < 8; ++column) CHECK(out[64 * j + 8 * row + column] == 100 * j + 10 * column + row);
}

TEST_CASE("mma of signed bytes") {
  std::mt19937 random(3);
  std::vector<signed char> a(512), b(256);
  for (auto& v : a) v = static_cast<signed char>(random());
  for (auto& v : b) v = static_cast<signed char>(random());
  const auto out = in_every_schedule([&] {
    const DeviceArray<signed char> from_a(a), from_b(b);
    const DeviceArray<int> to(128);
    require_launched(gpu::launch(multiply_s8, 1, 32, 0, nullptr, from_a.get(), from_b.get(), to.get()));
    return to.read();
  });
  for (std::size_t m = 0; m < 16; ++m)
    for (std::size_t n = 0; n < 8; ++n) {
      int wanted = static_cast<int>(10 * (1 + m / 8 * 2 + n % 2));
      for (std::size_t k = 0; k < 32; ++k) wanted += a[32 * m + k] * b[32 * n + k];
      CHECK(out[8 * m + n] == wanted);
    }
}

TEST_CASE("asynchronous copies through a ring") {
  const int rows = GENERATE(1, 2, 7);
  const auto x = small_integers(static_cast<std::size_t>(rows) * 256, 4);
  const auto out = in_every_schedule([&] {
    const DeviceArray<float> from(x), to(64);
    require_launched(gpu::launch(sum_through_ring, 1, 64, 3 * 1024, nullptr, from.get(), to.get(), rows));
    return to.read();
  });
  for (std::size_t n = 0; n < 64; ++n) {
    float wanted = 0;
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
      for (std::size_t i = 0; i < 4; ++i) wanted += x[256 * row + (4 * n + 64 * i + i) % 256];
    CHECK(out[n] == wanted);
  }
}

TEST_CASE("named barriers") {
  const auto out = run_block<int>(produce_and_consume, 128, 3);
  for (std::size_t round = 0; round < 6; ++round)
    for (std::size_t n = 0; n < 64; ++n) CHECK(out[64 * round + n] == static_cast<int>(1000 * round + 63 - n));
}

TEST_CASE("threads and blocks of three dimensions") {
  const auto out = in_every_schedule([] {
    const DeviceArray<unsigned> to(24 * 30);
    require_launched(gpu::launch(places, dim3(2, 3, 4), dim3(5, 2, 3), 0, nullptr, to.get()));
    return to.read();
  });
  for (unsigned i = 0; i < out.size(); ++i) CHECK(out[i] == 1000 * (i / 30) + i % 30);
}

TEST_CASE("a sum in a fixed order has the host's bits") {
  const int size = GENERATE(1, 100, 577), blocks = 3;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(blocks * size));
  for (float& v : x) v = normal(random);
  std::vector<float> means;
  const auto out = in_every_schedule([&] {
    const DeviceArray<float> from(x), to(static_cast<std::size_t>(blocks) * 128), mean(static_cast<std::size_t>(blocks));
    require_launched(gpu::launch(block_sums, blocks, 128, 0, nullptr, from.get(), to.get(), mean.get(), size));
    means = mean.read();
    return to.read();
  });
  for (int block = 0; block < blocks; ++block) {
    std::vector<float> part(128);
    for (int i = 0; i < size; ++i) {
      const float v = x[static_cast<std::size_t>(block * size + i)];
      part[static_cast<std::size_t>(i % 128)] = std::fma(v, v, part[static_cast<std::size_t>(i % 128)]);
    }
    for (std::size_t step = 64; step > 0; step /= 2)
      for (std::size_t i = 0; i < step; ++i) part[i] += part[i + step];
    for (std::size_t n = 0; n < 128; ++n) CHECK(out[static_cast<std::size_t>(block) * 128 + n] == part[0]);
    CHECK(means[static_cast<std::size_t>(block)] == part[0] / static_cast<float>(size) + 1);
  }
}

TEST_CASE("the last block sees what the others published") {
  const auto x = small_integers(5 * 32, 6);
  const auto sum = [&] {
    const DeviceArray<float> from(x), parts(5), out(std::vector<float>(1));
    const DeviceArray<unsigned> finished(std::vector<unsigned>(1));
    require_launched(gpu::launch(sum_over_blocks, 5, 32, 0, nullptr, from.get(), parts.get(), finished.get(), out.get()));
    return out.read();
  };
  float wanted = 0;
  for (float v : x) wanted += v;
  CHECK(in_every_schedule(sum)[0] == wanted);
  CHECK(with_blocks_apart(sum)[0] == wanted);
}

TEST_CASE("a launch no device takes is refused with a number") {
  const DeviceArray<unsigned> to(1);
  CHECK(gpu::launch(places, 1, 1025, 0, nullptr, to.get()) != 0);
  CHECK(gpu::launch(places, 1, 1, 300 * 1024, nullptr, to.get()) != 0);
}
