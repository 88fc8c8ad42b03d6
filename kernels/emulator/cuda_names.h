// CUDA's own names for the host compiler: what kernels may use beside gpu.h. No CUDA header is
// included.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/emulator/runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) alignas(n)

struct float2 {
  float x, y;
} __attribute__((aligned(8)));
struct float4 {
  float x, y, z, w;
} __attribute__((aligned(16)));
struct int2 {
  int x, y;
} __attribute__((aligned(8)));
struct int4 {
  int x, y, z, w;
} __attribute__((aligned(16)));
struct uint2 {
  unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
  unsigned x, y, z, w;
} __attribute__((aligned(16)));
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// References: a struct of CUDA's has members of these names, so they cannot be macros.
inline const uint3& threadIdx = dex::emulator::place.thread;
inline const uint3& blockIdx = dex::emulator::place.block;
inline const dim3& blockDim = dex::emulator::place.block_size;
inline const dim3& gridDim = dex::emulator::place.grid_size;
inline constexpr int warpSize = 32;

namespace dex::emulator {
// A value of up to 8 bytes as it travels between lanes.
template <class T>
std::uint64_t packed(T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles take 4 or 8 bytes");
  if constexpr (sizeof(T) == 4)
    return __builtin_bit_cast(std::uint32_t, value);
  else
    return __builtin_bit_cast(std::uint64_t, value);
}
template <class T>
T unpacked(std::uint64_t bits) {
  if constexpr (sizeof(T) == 4)
    return __builtin_bit_cast(T, std::uint32_t(bits));
  else
    return __builtin_bit_cast(T, bits);
}
template <class T>
T shuffled(Shuffle kind, unsigned mask, T value, int operand, int width, Site site) {
  return unpacked<T>(shuffle(kind, mask, packed(value), operand, width, site));
}

// Read, change, write, as one step; returns what was there.
template <class T, class Change>
T atomically(T* at, Change change) {
  T seen;
  __atomic_load(at, &seen, __ATOMIC_RELAXED);
  for (;;) {
    T wanted = change(seen);
    if (__atomic_compare_exchange(at, &seen, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return seen;
  }
}
// Keeps a parameter out of deduction.
template <class T>
using plain = std::type_identity_t<T>;
}  // namespace dex::emulator

inline void __syncthreads(dex::emulator::Site site = dex::emulator::Site::here()) {
  dex::emulator::block_barrier(false, site);
}
inline int __syncthreads_count(int predicate,
                               dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::block_barrier(predicate != 0, site);
}
inline int __syncthreads_or(int predicate, dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::block_barrier(predicate != 0, site) != 0;
}
inline int __syncthreads_and(int predicate,
                             dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::block_barrier(predicate == 0, site) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       dex::emulator::Site site = dex::emulator::Site::here()) {
  dex::emulator::warp_barrier(mask, site);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::shuffled(dex::emulator::Shuffle::from, mask, value, source, width, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32,
                 dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::shuffled(dex::emulator::Shuffle::up, mask, value, int(by), width, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                   dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::shuffled(dex::emulator::Shuffle::down, mask, value, int(by), width, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32,
                  dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::shuffled(dex::emulator::Shuffle::exclusive_or, mask, value, with, width,
                                 site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::ballot(mask, predicate != 0, "__ballot_sync", site);
}
inline int __any_sync(unsigned mask, int predicate,
                      dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::ballot(mask, predicate != 0, "__any_sync", site) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::ballot(mask, predicate == 0, "__all_sync", site) == 0;
}

inline unsigned __reduce_add_sync(unsigned mask, unsigned v,
                                  dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::reduce(dex::emulator::Reduce::add, mask, v, site);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned v,
                                  dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::reduce(dex::emulator::Reduce::min, mask, v, site);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned v,
                                  dex::emulator::Site site = dex::emulator::Site::here()) {
  return dex::emulator::reduce(dex::emulator::Reduce::max, mask, v, site);
}
inline int __reduce_min_sync(unsigned mask, int v,
                             dex::emulator::Site site = dex::emulator::Site::here()) {
  return int(dex::emulator::reduce(dex::emulator::Reduce::min_signed, mask, unsigned(v), site));
}
inline int __reduce_max_sync(unsigned mask, int v,
                             dex::emulator::Site site = dex::emulator::Site::here()) {
  return int(dex::emulator::reduce(dex::emulator::Reduce::max_signed, mask, unsigned(v), site));
}

template <class T>
T atomicAdd(T* at, dex::emulator::plain<T> by) {
  return dex::emulator::atomically(at, [by](T seen) { return static_cast<T>(seen + by); });
}
// wraps around
inline int atomicAdd(int* at, int by) { return __atomic_fetch_add(at, by, __ATOMIC_RELAXED); }
template <class T>
T atomicMax(T* at, dex::emulator::plain<T> with) {
  return dex::emulator::atomically(at, [with](T seen) { return std::max(seen, with); });
}
template <class T>
T atomicMin(T* at, dex::emulator::plain<T> with) {
  return dex::emulator::atomically(at, [with](T seen) { return std::min(seen, with); });
}
template <class T>
T atomicExch(T* at, dex::emulator::plain<T> value) {
  return dex::emulator::atomically(at, [value](T) { return value; });
}
template <class T>
T atomicCAS(T* at, dex::emulator::plain<T> expected, dex::emulator::plain<T> value) {
  __atomic_compare_exchange(at, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

inline void __threadfence() { dex::emulator::fence(); }
[[noreturn]] inline void __trap(dex::emulator::Site site = dex::emulator::Site::here()) {
  dex::emulator::fail(site, "__trap");
}

template <class T>
T __ldg(const T* from) {
  return *from;
}
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __popcll(unsigned long long v) { return std::popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline int __clz(int v) { return std::countl_zero(unsigned(v)); }
inline int __clzll(long long v) { return std::countl_zero(static_cast<unsigned long long>(v)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(std::uint64_t{a} * b >> 32); }
inline float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
inline float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
inline int __float_as_int(float v) { return __builtin_bit_cast(int, v); }

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
inline unsigned long long max(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
