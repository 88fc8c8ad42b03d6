// As gpu_test.cu: what moves tiles through shared memory and tensor cores, barriers, and small
// kernels made of both.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "kernels/cuda/gpu.h"
#include "tests/kernels/cuda/schedules.h"

using namespace dex;
using namespace dex::test;
using gpu::bf16;

namespace {

constexpr unsigned kAll = 0xffffffffu;

// out = A B: A (16, 16) and B by columns (8, 16), in bf16; then the same fragments by ldmatrix.
__global__ void multiply_bf16(const bf16* a, const bf16* b, float* out) {
  SHARED(bf16[16][16], a_tile);
  SHARED(bf16[16][16], b_tile);
  const int lane = gpu::thread(), g = lane / 4, t = lane % 4;
  for (int i = lane; i < 256; i += 32) a_tile[i / 16][i % 16] = a[i];
  for (int i = lane; i < 256; i += 32) b_tile[i / 16][i % 16] = i < 128 ? b[i] : bf16{0};
  __syncwarp();
  const auto pair = [](const bf16* at) { return at[0].u | std::uint32_t(at[1].u) << 16; };
  const std::uint32_t by_hand[4] = {pair(a + 16 * g + 2 * t), pair(a + 16 * (g + 8) + 2 * t),
                                    pair(a + 16 * g + 2 * t + 8),
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
  const int lane = gpu::thread();
  for (int i = 0; i < 8; ++i)
    matrices[lane / 8][lane % 8][i] = std::uint16_t(100 * (lane / 8) + 10 * (lane % 8) + i);
  __syncwarp();
  std::uint32_t r[4];
  gpu::ldmatrix_x4_transposed(r, matrices[lane / 8][lane % 8]);
  for (int j = 0; j < 4; ++j)
    for (int half = 0; half < 2; ++half)  // row g of the transpose, columns 2t, 2t+1
      out[64 * j + 8 * (lane / 4) + 2 * (lane % 4) + half] = std::uint16_t(r[j] >> 16 * half);
}

// A (16, 32) and B by columns (8, 32), in signed bytes.
__global__ void multiply_s8(const signed char* a, const signed char* b, int* out) {
  const int lane = gpu::thread(), g = lane / 4, t = lane % 4;
  const auto four = [](const signed char* at) {
    return *reinterpret_cast<const std::uint32_t*>(at);
  };
  const std::uint32_t af[4] = {four(a + 32 * g + 4 * t), four(a + 32 * (g + 8) + 4 * t),
                               four(a + 32 * g + 4 * t + 16), four(a + 32 * (g + 8) + 4 * t + 16)};
  const std::uint32_t bf[2] = {four(b + 32 * g + 4 * t), four(b + 32 * g + 4 * t + 16)};
  std::int32_t d[4] = {10, 20, 30, 40};
  gpu::mma_s8_16x8x32(d, af, bf);
  for (int r = 0; r < 4; ++r) out[(g + r / 2 * 8) * 8 + 2 * t + r % 2] = d[r];
}

// Sums rows of x, 256 floats each, through a ring of three slots; rows past the end come as zeros.
__global__ void sum_through_ring(const float* x, float* out, int rows) {
  constexpr int kSlots = 3;
  DYN_SHARED(float, ring);
  const int n = gpu::thread();
  const auto fetch = [&](int row) {
    gpu::cp_async16(ring + row % kSlots * 256 + 4 * n, x + (row < rows ? row : 0) * 256 + 4 * n,
                    row < rows);
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
  const int n = gpu::thread(), half = n % 64;
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

// Each thread of a block adds in another order by barriers only; every block has its own shared
// memory.
__global__ void block_sums(const float* x, float* out, float* mean_square, int size) {
  SHARED(float[128], part);
  SHARED(float4[2], ends);
  const int n = gpu::thread();
  x += std::ptrdiff_t(blockIdx.x) * size;
  float sum = 0;
  for (int i = n; i < size; i += 128) sum = fmaf(x[i], x[i], sum);
  part[n] = sum;
  __syncthreads();
  for (int step = 64; step > 0; step /= 2) {
    if (n < step) part[n] += part[n + step];
    __syncthreads();
  }
  if (n < 2) ends[n] = make_float4(x[0], x[size - 1], part[0], float(n));
  __syncthreads();
  if (n == 0) mean_square[blockIdx.x] = ends[1].z / float(size) + ends[1].w - ends[0].w;
  out[blockIdx.x * 128 + threadIdx.x] = part[0];
}

// Each block sums its part; the last to finish adds the parts up.
__global__ void sum_over_blocks(const float* x, float* parts, unsigned* finished, float* out) {
  SHARED(bool, last);
  const unsigned n = threadIdx.x;
  float part = x[blockIdx.x * 32 + n];
  for (int step = 16; step > 0; step /= 2) part += __shfl_down_sync(kAll, part, unsigned(step));
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
  for (float& v : values) v = float(int(random() % 17) - 8);
  return values;
}

}  // namespace

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
    require_launched(
        gpu::launch(multiply_bf16, 1, 32, 0, nullptr, from_a.get(), from_b.get(), to.get()));
    return to.read();
  });
  for (std::size_t m = 0; m < 16; ++m)
    for (std::size_t n = 0; n < 8; ++n) {
      float wanted = float(1 + m / 8 * 2 + n % 2);
      for (std::size_t k = 0; k < 16; ++k) wanted += a[16 * m + k] * b[16 * n + k];
      CHECK(out[8 * m + n] == wanted);
      CHECK(out[128 + 8 * m + n] == wanted);
    }
}

TEST_CASE("ldmatrix transposes") {
  const auto out = run_in_one_block<std::uint16_t>(transpose, 32, 8);
  for (std::size_t j = 0; j < 4; ++j)
    for (std::size_t row = 0; row < 8; ++row)
      for (std::size_t column = 0; column < 8; ++column)
        CHECK(out[64 * j + 8 * row + column] == 100 * j + 10 * column + row);
}

TEST_CASE("mma of signed bytes") {
  std::mt19937 random(3);
  std::vector<signed char> a(512), b(256);
  for (auto& v : a) v = static_cast<signed char>(random());
  for (auto& v : b) v = static_cast<signed char>(random());
  const auto out = in_every_schedule([&] {
    const DeviceArray<signed char> from_a(a), from_b(b);
    const DeviceArray<int> to(128);
    require_launched(
        gpu::launch(multiply_s8, 1, 32, 0, nullptr, from_a.get(), from_b.get(), to.get()));
    return to.read();
  });
  for (std::size_t m = 0; m < 16; ++m)
    for (std::size_t n = 0; n < 8; ++n) {
      int wanted = int(10 * (1 + m / 8 * 2 + n % 2));
      for (std::size_t k = 0; k < 32; ++k) wanted += a[32 * m + k] * b[32 * n + k];
      CHECK(out[8 * m + n] == wanted);
    }
}

TEST_CASE("asynchronous copies through a ring") {
  const int rows = GENERATE(1, 2, 7);
  const auto x = small_integers(std::size_t(rows) * 256, 4);
  const auto out = in_every_schedule([&] {
    const DeviceArray<float> from(x), to(64);
    require_launched(
        gpu::launch(sum_through_ring, 1, 64, 3 * 1024, nullptr, from.get(), to.get(), rows));
    return to.read();
  });
  for (std::size_t n = 0; n < 64; ++n) {
    float wanted = 0;
    for (std::size_t row = 0; row < std::size_t(rows); ++row)
      for (std::size_t i = 0; i < 4; ++i) wanted += x[256 * row + (4 * n + 64 * i + i) % 256];
    CHECK(out[n] == wanted);
  }
}

TEST_CASE("named barriers") {
  const auto out = run_in_one_block<int>(produce_and_consume, 128, 3);
  for (std::size_t round = 0; round < 6; ++round)
    for (std::size_t n = 0; n < 64; ++n) CHECK(out[64 * round + n] == int(1000 * round + 63 - n));
}

TEST_CASE("a sum in a fixed order has the host's bits") {
  const int size = GENERATE(1, 100, 577), blocks = 3;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(blocks * size);
  for (float& v : x) v = normal(random);
  std::vector<float> means;
  const auto out = in_every_schedule([&] {
    const DeviceArray<float> from(x), to(std::size_t(blocks) * 128), mean(blocks);
    require_launched(
        gpu::launch(block_sums, blocks, 128, 0, nullptr, from.get(), to.get(), mean.get(), size));
    means = mean.read();
    return to.read();
  });
  for (int block = 0; block < blocks; ++block) {
    std::vector<float> part(128);
    for (int i = 0; i < size; ++i) {
      const float v = x[block * size + i];
      part[i % 128] = std::fma(v, v, part[i % 128]);
    }
    for (std::size_t step = 64; step > 0; step /= 2)
      for (std::size_t i = 0; i < step; ++i) part[i] += part[i + step];
    for (std::size_t n = 0; n < 128; ++n) CHECK(out[std::size_t(block) * 128 + n] == part[0]);
    CHECK(means[block] == part[0] / float(size) + 1);
  }
}

TEST_CASE("the last block sees what the others published") {
  const auto x = small_integers(5 * 32, 6);
  const auto sum = [&] {
    const DeviceArray<float> from(x), parts(5), out(std::vector<float>(1));
    const DeviceArray<unsigned> finished(std::vector<unsigned>(1));
    require_launched(gpu::launch(sum_over_blocks, 5, 32, 0, nullptr, from.get(), parts.get(),
                                 finished.get(), out.get()));
    return out.read();
  };
  float wanted = 0;
  for (float v : x) wanted += v;
  CHECK(in_every_schedule(sum)[0] == wanted);
  CHECK(with_blocks_apart(sum)[0] == wanted);
}
