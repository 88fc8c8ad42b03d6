// Kernels with one fault each, and a program that runs the one it is asked for, in every schedule:
// the emulator must see the fault. Exit codes: 0 nothing found, 3 a Fault, 4 schedules differ;
// sanitizers have their own. Started by emulator_test.
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>

#include "tests/kernels/cuda/schedules.h"

using namespace dex::gpu;
using dex::test::DeviceArray;

namespace {

constexpr unsigned kAll = 0xffffffffu;

__global__ void barrier_reached_by_half(float* y) {
  if (threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = 1;
}

__global__ void barriers_in_two_branches(float* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = 1;
}

__global__ void divergent_warp_barrier(float* y) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  y[threadIdx.x] = 1;
}

__global__ void mask_names_waiting_lanes(float* y) {
  if (threadIdx.x % 32 < 16) y[threadIdx.x] = __shfl_xor_sync(kAll, 1.0f, 1);
  __syncthreads();
}

__global__ void mask_without_caller(float* y) {
  y[threadIdx.x] = __shfl_xor_sync(0xffffu, 1.0f, 1);
}

__global__ void source_outside_mask(float* y) {
  if (threadIdx.x % 32 < 16) y[threadIdx.x] = __shfl_sync(0xffffu, 1.0f, 20);
}

__global__ void two_operations_one_mask(float* y) {
  if (threadIdx.x % 32 < 16) {
    y[threadIdx.x] = __shfl_xor_sync(kAll, 1.0f, 1);
  } else {
    y[threadIdx.x] = __shfl_xor_sync(kAll, 2.0f, 1);
  }
}

__global__ void mma_by_half_a_warp(float* y) {
  if (threadIdx.x % 32 >= 16) return;
  const std::uint32_t a[4] = {}, b[2] = {};
  float d[4] = {};
  mma_16x8x16(d, a, b);
  y[threadIdx.x] = d[0];
}

__global__ void named_barrier_of_part_warps(float* y) {
  if (threadIdx.x < 48) bar_sync(1, 48);
  y[threadIdx.x] = 1;
}

__global__ void named_barrier_counts_disagree(float* y) {
  bar_sync(1, threadIdx.x < 32 ? 64 : 32);
  y[threadIdx.x] = 1;
}

__global__ void misaligned_copy(float* y) {
  SHARED(float[256], tile);
  cp_async16(tile + 4 * threadIdx.x + 1, y);
  cp_async_commit();
  cp_async_wait<0>();
}

__global__ void misaligned_ldmatrix(float* y) {
  SHARED(std::uint16_t[1024], tile);
  tile[threadIdx.x] = 1;
  __syncthreads();
  std::uint32_t r[4];
  ldmatrix_x4(r, tile + 8 * (threadIdx.x % 32) + 4);
  y[threadIdx.x] = float(r[0]);
}

__global__ void copy_never_awaited(float* y) {
  SHARED(float[256], tile);
  cp_async16(tile + 4 * threadIdx.x, y);
  cp_async_commit();
  tile[0] = 1;
}

// The wait lets one group be under way: the one that is read.
__global__ void copy_awaited_too_late(float* y, const float* x) {
  DYN_SHARED(float, tile);
  float* mine = tile + 4 * threadIdx.x;
  cp_async16(mine, x + 4 * threadIdx.x);
  cp_async_commit();
  cp_async_wait<1>();
  y[threadIdx.x] = mine[0];
  cp_async_wait<0>();
}

// A slot of the ring is refilled while others still read it.
__global__ void ring_refilled_too_early(float* y, const float* x) {
  DYN_SHARED(float, tile);
  cp_async16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  y[threadIdx.x] = tile[4 * (threadIdx.x ^ 33)];
  cp_async16(tile + 4 * threadIdx.x, x + 256 + 4 * threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
}

__global__ void shared_out_of_bounds(float* y) {
  SHARED(float[63], tile);
  tile[threadIdx.x] = 1;
  y[threadIdx.x] = 1;
}

__global__ void dynamic_shared_out_of_bounds(float* y, int size) {
  DYN_SHARED(float, tile);
  tile[size + threadIdx.x] = 1;
  y[threadIdx.x] = 1;
}

__global__ void global_out_of_bounds(float* y) { y[threadIdx.x + 1] = 1; }

__global__ void misaligned_vector(float* y) {
  if (threadIdx.x != 0) return;
  const auto v = *reinterpret_cast<const float4*>(y + 1);
  y[0] = v.x;
}

__global__ void shared_never_written(int* y) {
  SHARED(int[64], tile);
  if (threadIdx.x % 2 == 0) tile[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}

// Blocks before it left the values it forgets to write.
__global__ void shared_of_the_last_block(int* y) {
  SHARED(int[64], tile);
  if (blockIdx.x == 0) tile[threadIdx.x] = 1;
  y[64 * blockIdx.x + threadIdx.x] = tile[threadIdx.x];
}

__global__ void no_barrier_after_writing(float* y) {
  SHARED(float[64], tile);
  tile[threadIdx.x] = float(threadIdx.x);
  y[threadIdx.x] = tile[(threadIdx.x + 32) % 64];
}

__global__ void no_barrier_before_reuse(float* y) {
  SHARED(float[64], tile);
  for (int round = 0; round < 2; ++round) {
    tile[threadIdx.x] = float(threadIdx.x + 100 * round);
    __syncthreads();
    y[64 * round + threadIdx.x] = tile[63 - threadIdx.x];
  }
}

__global__ void no_syncwarp(float* y) {
  SHARED(float[64], tile);
  tile[threadIdx.x] = float(threadIdx.x);
  y[threadIdx.x] = tile[threadIdx.x ^ 1];
}

__global__ void shuffle_as_fence(float* y) {
  SHARED(float[64], tile);
  tile[threadIdx.x] = float(threadIdx.x);
  const float one = __shfl_xor_sync(kAll, 1.0f, 1);
  y[threadIdx.x] = tile[threadIdx.x ^ 1] * one;
}

__global__ void plain_sum_in_block(float* y) { *y += 1; }

__global__ void plain_sum_over_blocks(float* y) {
  if (threadIdx.x == 0) *y += 1;
}

// Block 1 reads what block 0 published without a fence.
__global__ void flag_without_fence(float* y, int* flag) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) *y = 1;
  if (atomicAdd(flag, 1) == 1) y[1] = *y;
}
__global__ void flag_with_fence(float* y, int* flag) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) *y = 1;
  __threadfence();
  const bool last = atomicAdd(flag, 1) == 1;
  __threadfence();
  if (last) y[1] = *y;
}

template <class T>
std::vector<T> in_blocks(int blocks, void (*kernel)(T*), std::size_t size) {
  const DeviceArray<T> y(std::vector<T>(size, 0));
  dex::test::require_launched(launch(kernel, blocks, 64, 0, nullptr, y.get()));
  return y.read();
}
std::vector<float> in_one_block(void (*kernel)(float*)) { return in_blocks(1, kernel, 64); }

std::vector<float> with_copies(void (*kernel)(float*, const float*)) {
  std::vector<float> x(512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(i);
  const DeviceArray<float> from(x), y(64);
  dex::test::require_launched(launch(kernel, 1, 64, 1024, nullptr, y.get(), from.get()));
  return y.read();
}

std::vector<float> with_flag(void (*kernel)(float*, int*)) {
  const DeviceArray<float> y(std::vector<float>(2));
  const DeviceArray<int> flag(std::vector<int>(1));
  dex::test::require_launched(launch(kernel, 2, 32, 0, nullptr, y.get(), flag.get()));
  return y.read();
}

std::vector<float> with_dynamic_shared() {
  const DeviceArray<float> y(64);
  dex::test::require_launched(
      launch(dynamic_shared_out_of_bounds, 1, 64, 256, nullptr, y.get(), 1));
  return y.read();
}

template <class Body>
int report(Body body, bool apart) {
  try {
    if (apart) {
      dex::test::with_blocks_apart(body);
    } else {
      dex::test::in_every_schedule(body);
    }
  } catch (const dex::emulator::Fault& fault) {
    std::printf("%s\n", fault.what());
    return 3;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 4;
  }
  return 0;
}

#define KERNEL(name) \
  {#name, [](bool apart) { return report([] { return in_one_block(name); }, apart); }}
#define CASE(name, call) {#name, [](bool apart) { return report([] { return call; }, apart); }}
const std::map<std::string, std::function<int(bool)>> kCases = {
    KERNEL(barrier_reached_by_half),
    KERNEL(barriers_in_two_branches),
    KERNEL(divergent_warp_barrier),
    KERNEL(mask_names_waiting_lanes),
    KERNEL(mask_without_caller),
    KERNEL(source_outside_mask),
    KERNEL(two_operations_one_mask),
    KERNEL(mma_by_half_a_warp),
    KERNEL(named_barrier_of_part_warps),
    KERNEL(named_barrier_counts_disagree),
    KERNEL(misaligned_copy),
    KERNEL(misaligned_ldmatrix),
    KERNEL(copy_never_awaited),
    CASE(copy_awaited_too_late, with_copies(copy_awaited_too_late)),
    CASE(ring_refilled_too_early, with_copies(ring_refilled_too_early)),
    KERNEL(shared_out_of_bounds),
    CASE(dynamic_shared_out_of_bounds, with_dynamic_shared()),
    KERNEL(global_out_of_bounds),
    KERNEL(misaligned_vector),
    CASE(shared_never_written, in_blocks(1, shared_never_written, 64)),
    CASE(shared_of_the_last_block, in_blocks(2, shared_of_the_last_block, 128)),
    KERNEL(no_barrier_after_writing),
    CASE(no_barrier_before_reuse, in_blocks(1, no_barrier_before_reuse, 128)),
    KERNEL(no_syncwarp),
    KERNEL(shuffle_as_fence),
    KERNEL(plain_sum_in_block),
    CASE(plain_sum_over_blocks, in_blocks(4, plain_sum_over_blocks, 1)),
    CASE(flag_without_fence, with_flag(flag_without_fence)),
    CASE(flag_with_fence, with_flag(flag_with_fence)),
};

}  // namespace

// wrong_kernels NAME [apart]: apart keeps blocks unordered.
int main(int argc, char** argv) {
  const auto found = kCases.find(argc > 1 ? argv[1] : "");
  if (found == kCases.end()) return 2;
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  return found->second(argc > 2 && std::strcmp(argv[2], "apart") == 0);
}
