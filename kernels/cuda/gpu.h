// What a kernel file is written in: nvcc compiles it for a GPU, the host compiler for the emulator
// (kernels/emulator), which runs the same source on the CPU. The only file that knows which; kernel
// files hold no PTX, no <<<>>>, no #ifdef. Beside the names below, kernels use CUDA's own as far as
// kernels/emulator/cuda_names.h has them.
//   SHARED(float[4][64], tile);   block-shared array; memory starts undefined
//   DYN_SHARED(bf16, ring);       bf16* to the block's dynamic shared memory, 128-byte aligned;
//                                 once per kernel
//   UNROLL for (...)              unrolls the loop fully
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/cuda/shared_memory.h"

struct CUstream_st;  // CUDA's own

namespace dex::gpu {
using stream_t = CUstream_st*;  // null: the default stream
template <class T>
using as_is = T;
}  // namespace dex::gpu

#ifdef __CUDACC__
#include <cuda_runtime.h>

#define SHARED(T, name) __shared__ dex::gpu::as_is<T> name
#define DYN_SHARED(T, name)                                        \
  extern __shared__ __align__(128) unsigned char dyn_shared_raw[]; \
  T* name = reinterpret_cast<T*>(dyn_shared_raw)
#define UNROLL _Pragma("unroll")

namespace dex::gpu {
inline constexpr bool kEmulated = false;

// Lets k have all the dynamic memory that its static variables leave: one value for all who launch
// it. After the first time on a device this only asks which device is the thread's.
inline int opt_in(const void* k) {
  int device = 0;
  if (const auto error = cudaGetDevice(&device)) return error;
  return opted_in().once(k, device, [k, device]() -> int {
    cudaFuncAttributes kernel{};
    int most = 0;
    if (const auto error = cudaFuncGetAttributes(&kernel, k)) return error;
    if (const auto error =
            cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
      return error;
    return cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                most - int(kernel.sharedSizeBytes));
  });
}

// Starts k on grid x block threads. 0, or a CUDA error number (35: no driver).
template <class... P, class... A>
int launch(void (*k)(P...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
           stream_t stream, A&&... arguments) {
  std::tuple<P...> exact(std::forward<A>(arguments)...);
  if (opts_in(dynamic_shared_bytes))
    if (const int error = opt_in(reinterpret_cast<const void*>(k))) return error;
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = dynamic_shared_bytes,
  config.stream = stream;
  return std::apply(
      [&](P&... each) -> int {
        void* pointers[] = {const_cast<void*>(static_cast<const void*>(&each))..., nullptr};
        return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(k), pointers);
      },
      exact);
}

// d += A B, bf16 x bf16 -> f32, by one warp. Lane 4g + t holds, the lower index in the low half of
// a register:
//   A (16 x 16): a[0] = [g][2t, 2t+1], a[1] = [g+8][2t..], a[2] = [g][2t+8..], a[3] = [g+8][2t+8..]
//   B (16 x 8):  b[0] = [2t, 2t+1][g], b[1] = [2t+8, 2t+9][g]: the pairs are adjacent in a
//                row-major weight [n][k]
//   D (16 x 8):  d[0], d[1] = [g][2t, 2t+1], d[2], d[3] = [g+8][2t, 2t+1]
__device__ inline void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4],
                                   const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += A B, s8 x s8 -> s32. As above with four bytes a register:
//   A (16 x 32): a[0] = [g][4t .. 4t+3], a[1] = [g+8][4t..], a[2] = [g][4t+16..], a[3] =
//     [g+8][4t+16..]
//   B (32 x 8):  b[0] = [4t .. 4t+3][g], b[1] = [4t+16 .. 4t+19][g]
__device__ inline void mma_s8_16x8x32(std::int32_t (&d)[4], const std::uint32_t (&a)[4],
                                      const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane l names the 16-byte row l %
// 8 of matrix l / 8; lane 4g + t gets r[j] = [g][2t, 2t+1] of matrix j.
__device__ inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(unsigned(__cvta_generic_to_shared(row)))
               : "memory");
}
// The same, transposed: r[j] = [2t][g], [2t+1][g] of matrix j.
__device__ inline void ldmatrix_x4_transposed(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(unsigned(__cvta_generic_to_shared(row)))
               : "memory");
}

// Copies 16 bytes, both ends 16-byte aligned; with valid = false writes zeros and reads nothing.
// The copy is there for its own thread after a cp_async_wait that covers it, for others after a
// barrier that follows.
__device__ inline void cp_async16(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   unsigned(__cvta_generic_to_shared(shared))),
               "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
}
// Closes a group of this thread's copies; empty groups count too.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most the last N groups of this thread are under way.
template <int N>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Barrier 1 .. 15 for `threads` threads (a multiple of 32), by whole warps; 0 is that of
// __syncthreads. Those who sync wait for all, those who arrive go on.
__device__ inline void bar_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void bar_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// For tests; they throw std::runtime_error with CUDA's message. Memory starts undefined.
inline void check(cudaError_t error) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}
inline int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}
inline void* device_alloc(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes > 0 ? bytes : 1));
  return memory;
}
inline void device_free(void* memory) { check(cudaFree(memory)); }
inline void copy_to_device(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}
inline void copy_to_host(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}
inline void synchronize() { check(cudaDeviceSynchronize()); }

// The ways tests run a kernel in; all must give the same bits. On a device they are mere repeats.
inline int schedules() { return 3; }
inline std::string use_schedule(int) { return "device"; }
// The emulator runs only so many blocks at each end of a grid, a device all; 0: both run all.
inline void run_ends(int) {}
// For what blocks do to each other, seen by the emulator under ThreadSanitizer: at most 6000
// threads a launch.
inline void keep_blocks_apart() {}
}  // namespace dex::gpu

#else
#include "kernels/emulator/cuda_names.h"
#include "kernels/emulator/emulator.h"
#include "kernels/emulator/twins.h"

#define SHARED(T, name)                                                 \
  static dex::emulator::Slot slot_of_##name;                            \
  auto& name = *static_cast<dex::gpu::as_is<T>*>(                       \
      dex::emulator::shared(slot_of_##name, sizeof(dex::gpu::as_is<T>), \
                            alignof(dex::gpu::as_is<T>), dex::emulator::Site::here()))
#define DYN_SHARED(T, name) T* name = static_cast<T*>(dex::emulator::dynamic_shared())
#define UNROLL
#endif

namespace dex::gpu {

// This thread's place in its block and the block's in the grid, as numbers to compute with.
__device__ inline int thread() { return int(threadIdx.x); }
__device__ inline int lane() { return int(threadIdx.x) % 32; }
__device__ inline int warp() { return int(threadIdx.x) / 32; }
__device__ inline int block() { return int(blockIdx.x); }
__device__ inline int block_y() { return int(blockIdx.y); }
__device__ inline int block_z() { return int(blockIdx.z); }

template <class To, class From>
__host__ __device__ inline To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

struct bf16 {
  std::uint16_t u;
};
__host__ __device__ inline float to_float(bf16 value) {
  return bits_as<float>(std::uint32_t{value.u} << 16);
}
// Round to nearest even; NaN keeps its sign and becomes quiet.
__host__ __device__ inline bf16 to_bf16(float value) {
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u), quiet = bits | 0x400000u;
  return {std::uint16_t((value != value ? quiet : rounded) >> 16)};
}
// Two as a register of a matrix fragment or a pair in memory.
__host__ __device__ inline std::uint32_t bf16_pair(float low, float high) {
  return to_bf16(low).u | std::uint32_t(to_bf16(high).u) << 16;
}

}  // namespace dex::gpu
