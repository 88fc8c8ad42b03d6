// Every primitive against what CUDA's and PTX's manuals say of it, spelled out on the host.
#include "kernels/cuda/gpu.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/stream.h"
#include "tests/kernels/cuda/schedules.h"

using namespace dex;
using namespace dex::test;
using gpu::bf16;

namespace {

constexpr unsigned kAll = 0xffffffffu;

__global__ void shuffles(int* out) {
  const int n = gpu::thread(), lane = n % 32;
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
  out[n + 64 * i++] = int(__shfl_sync(kAll, double(value) * 4294967296.0, 31) / 4294967296.0);
}

__global__ void votes(unsigned* out) {
  const unsigned n = threadIdx.x, lane = n % 32;
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  out[n] = __ballot_sync(kAll, lane % 3 == 0);
  out[n + 64] = __ballot_sync(half, lane % 3 == 0);
  out[n + 128] = unsigned(__any_sync(kAll, n == 40) * 2 + __all_sync(kAll, n != 40));
  out[n + 192] = unsigned(__syncthreads_count(n < 50));
  out[n + 256] = unsigned((__syncthreads_or(n == 3) != 0) * 4 +
                          (__syncthreads_or(n == 99) != 0) * 2 + (__syncthreads_and(n < 64) != 0));
  out[n + 320] = unsigned((__syncthreads_and(n != 63) != 0) * 8) + __reduce_add_sync(kAll, lane);
  out[n + 384] = __reduce_max_sync(half, n) * 100 + __reduce_min_sync(half, n);
  out[n + 448] = unsigned(__reduce_max_sync(kAll, int(lane) - 40) + 1000 +
                          __reduce_min_sync(kAll, int(lane) - 40));
}

// Lanes that exited may be named in a mask; the last warp of a block may have few lanes.
__global__ void votes_of_the_living(unsigned* out) {
  if (threadIdx.x % 32 >= 20) return;
  out[threadIdx.x] = __ballot_sync(kAll, 1);
}

__global__ void atomics(int* sums, float* float_sum, unsigned long long* best) {
  const int n = int(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&sums[0], n);
  atomicMax(&sums[1], n * 37 % 101);
  atomicMin(&sums[2], n * 37 % 101 - 7);
  atomicAdd(reinterpret_cast<unsigned*>(&sums[3]), 1u);
  if (atomicExch(&sums[4], 1) == 0) sums[5] = 7;
  int seen = 0;
  for (int before; (before = atomicCAS(&sums[6], seen, seen + 2)) != seen;) seen = before;
  atomicAdd(float_sum, 0.5f);
  atomicMax(best, static_cast<unsigned long long>(n * 37 % 101) << 32 | unsigned(n));
}

__global__ void integer_functions(int* out) {
  const int v = int(threadIdx.x * 2654435761u >> (threadIdx.x % 32));
  const unsigned u = unsigned(v);
  const unsigned n = threadIdx.x;
  out[n] = __popc(u) + 100 * __ffs(v) + 10000 * __clz(v);
  out[n + 64] = __popcll(~0ull << (v & 31)) + 100 * __ffsll(v) + 10000 * __clzll(v);
  out[n + 128] = int(__umulhi(u, 0xdeadbeefu));
  out[n + 192] =
      __float_as_int(__uint_as_float(u & 0x3fffffffu)) + int(__float_as_uint(__int_as_float(5)));
  out[n + 256] = min(v, 1000) + max(v % 7, 3) + __ldg(&out[n + 256]);
}

__global__ void conversions(const float* x, std::uint16_t* y, float* back, int count) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  y[i] = gpu::to_bf16(x[i]).u;
  back[i] = gpu::to_float(bf16{y[i]});
}

__global__ void places(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;
}

}  // namespace

TEST_CASE("shuffles") {
  const auto out = run_in_one_block<int>(shuffles, 64, 10);
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
      CHECK(out[n + 64 * i] == wanted[i]);
    }
  }
}

TEST_CASE("votes, counts and reductions") {
  const auto out = run_in_one_block<unsigned>(votes, 64, 8);
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
  const auto out = run_in_one_block<unsigned>(votes_of_the_living, 74, 1);
  for (unsigned n = 0; n < 74; ++n)
    CHECK(out[n] == (n % 32 >= 20 ? 0 : n < 64 ? 0xfffffu : 0x3ffu));
}

TEST_CASE("atomics") {
  const auto out = in_every_schedule([] {
    const DeviceArray<int> sums(std::vector<int>(7));
    const DeviceArray<float> float_sum(std::vector<float>(1));
    const DeviceArray<unsigned long long> best(std::vector<unsigned long long>(1));
    require_launched(
        gpu::launch(atomics, 3, 96, 0, nullptr, sums.get(), float_sum.get(), best.get()));
    auto all = sums.read();
    all.push_back(int(float_sum.read()[0] * 2));
    all.push_back(int(best.read()[0] >> 32));
    all.push_back(int(best.read()[0] & 0xffffffffu));
    return all;
  });
  // 37 n mod 101 is 100 for n = 30 and every 101 later: the last of them is 232.
  CHECK(out == std::vector<int>{288 * 287 / 2, 100, -7, 288, 1, 7, 576, 288, 100, 232});
}

TEST_CASE("integer functions") {
  const auto out = run_in_one_block<int>(integer_functions, 64, 5);
  for (unsigned n = 0; n < 64; ++n) {
    const int v = int(n * 2654435761u >> (n % 32));
    const auto u = unsigned(v);
    int ones = 0, lowest = 0, zeros = 32, zeros64 = 64;
    for (int bit = 31; bit >= 0; --bit)
      if (u >> bit & 1) ++ones, lowest = bit + 1;
    for (int bit = 0; bit < 32; ++bit)
      if (u >> bit & 1) zeros = 31 - bit, zeros64 = 63 - bit;
    if (v < 0) zeros64 = 0;
    CHECK(out[n] == ones + 100 * lowest + 10000 * zeros);
    CHECK(out[n + 64] == 64 - (v & 31) + 100 * lowest + 10000 * zeros64);
    CHECK(out[n + 128] == int(std::uint64_t{u} * 0xdeadbeefu >> 32));
    CHECK(out[n + 192] == int(u & 0x3fffffffu) + 5);
    CHECK(out[n + 256] == std::min(v, 1000) + std::max(v % 7, 3));
  }
}

TEST_CASE("bf16 rounds to nearest even and keeps NaN") {
  std::vector<float> x = {0.0f, -0.0f, 1.0f, INFINITY, -INFINITY, 3.4028235e38f, 1e-45f, -1e-40f};
  for (std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
    for (std::uint32_t high :
         {0x3f80u, 0x3f81u, 0xbf81u, 0x0000u, 0x0001u, 0x7f7fu, 0x7f80u, 0xffc0u, 0x7fbfu})
      x.push_back(gpu::bits_as<float>(high << 16 | low));
  std::vector<float> back;
  const auto y = in_every_schedule([&] {
    const DeviceArray<float> from(x), wide(x.size());
    const DeviceArray<std::uint16_t> to(x.size());
    require_launched(gpu::launch(conversions, 1, 64, 0, nullptr, from.get(), to.get(), wide.get(),
                                 int(x.size())));
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

TEST_CASE("threads and blocks of three dimensions") {
  const auto out = in_every_schedule([] {
    const DeviceArray<unsigned> to(24 * 30);
    require_launched(gpu::launch(places, dim3(2, 3, 4), dim3(5, 2, 3), 0, nullptr, to.get()));
    return to.read();
  });
  for (unsigned i = 0; i < out.size(); ++i) CHECK(out[i] == 1000 * (i / 30) + i % 30);
}

TEST_CASE("our own errors have no number of CUDA's, and a text") {
  CHECK(cuda::kTooSmall != cuda::kNoDevice);
  for (const int error : {cuda::kTooSmall, cuda::kNoDevice}) {
    CHECK(error < 0);  // CUDA's begin at 0
    CHECK(cuda::error_text(error).find("CUDA error") == std::string::npos);
  }
  CHECK(cuda::error_text(1) == "CUDA error 1");
}

TEST_CASE("a launch no device takes is refused with a number") {
  const DeviceArray<unsigned> to(1);
  CHECK(gpu::launch(places, 1, 1025, 0, nullptr, to.get()) != 0);
  CHECK(gpu::launch(places, 1, 1, 300 * 1024, nullptr, to.get()) != 0);
}
