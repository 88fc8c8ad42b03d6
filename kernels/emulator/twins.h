// The emulator's side of gpu.h; contracts are there.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/cuda/shared_memory.h"
#include "kernels/emulator/cuda_names.h"
#include "kernels/emulator/runtime.h"

struct CUstream_st;

namespace dex::gpu {
inline constexpr bool kEmulated = true;
using emulator::Site;

inline int opt_in(const void* k) {
  return opted_in().once(k, emulator::device_number(), [k] { return emulator::opt_in(k); });
}

template <class... P, class... A>
int launch(void (*k)(P...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, CUstream_st*,
           A&&... arguments) {
  const std::tuple<P...> exact(std::forward<A>(arguments)...);
  const auto* kernel = reinterpret_cast<const void*>(k);
  if (opts_in(dynamic_shared_bytes))
    if (const int error = opt_in(kernel)) return error;
  return emulator::run(
      grid, block, dynamic_shared_bytes, [&] { std::apply(k, exact); },
      emulator::has_opted_in(kernel));
}

inline void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                        Site site = Site::here()) {
  emulator::mma_bf16(d, a, b, site);
}
inline void mma_s8_16x8x32(std::int32_t (&d)[4], const std::uint32_t (&a)[4],
                           const std::uint32_t (&b)[2], Site site = Site::here()) {
  emulator::mma_s8(d, a, b, site);
}

inline void ldmatrix_row(std::uint32_t (&r)[4], const void* row, bool transposed, Site site) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    emulator::fail(site, "ldmatrix: a row is not 16-byte aligned");
  if (!emulator::is_shared(row, 16))
    emulator::fail(site, "ldmatrix: a row is not in shared memory");
  const auto* words = static_cast<const std::uint32_t*>(row);
  const std::uint32_t mine[4] = {words[0], words[1], words[2], words[3]};
  emulator::ldmatrix(r, mine, transposed, site);
}
inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row, Site site = Site::here()) {
  ldmatrix_row(r, row, false, site);
}
inline void ldmatrix_x4_transposed(std::uint32_t (&r)[4], const void* row,
                                   Site site = Site::here()) {
  ldmatrix_row(r, row, true, site);
}

inline void copy16(emulator::Copy copy) {
  *static_cast<uint4*>(copy.to) =
      copy.from != nullptr ? *static_cast<const uint4*>(copy.from) : uint4{0, 0, 0, 0};
}
inline void cp_async16(void* shared, const void* global, bool valid = true,
                       Site site = Site::here()) {
  const auto address = reinterpret_cast<std::uintptr_t>(shared) |
                       (valid ? reinterpret_cast<std::uintptr_t>(global) : 0);
  if (address % 16 != 0) emulator::fail(site, "cp_async16: an end is not 16-byte aligned");
  if (!emulator::is_shared(shared, 16))
    emulator::fail(site, "cp_async16: the destination is not in shared memory");
  const emulator::Copy copy{shared, valid ? global : nullptr};
  emulator::keep(copy, site);
  if (emulator::copies_early()) copy16(copy);
}
inline void cp_async_commit() { emulator::close_group(); }
template <int N>
void cp_async_wait() {
  for (auto copy = emulator::due(N); copy.to != nullptr; copy = emulator::due(N))
    if (!emulator::copies_early()) copy16(copy);
}

inline void bar_sync(int barrier, int threads, Site site = Site::here()) {
  emulator::named_barrier(barrier, threads, true, site);
}
inline void bar_arrive(int barrier, int threads, Site site = Site::here()) {
  emulator::named_barrier(barrier, threads, false, site);
}

inline int device_count() { return 1; }
inline void* device_alloc(std::size_t bytes) { return emulator::allocate(bytes); }
inline void device_free(void* memory) { emulator::release(memory); }
inline void copy_to_device(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
inline void copy_to_host(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
inline void synchronize() {}

inline int schedules() { return emulator::schedules(); }
inline std::string use_schedule(int number) { return emulator::use_schedule(number); }
inline void run_ends(int blocks) { emulator::run_ends(unsigned(blocks)); }
inline void keep_blocks_apart() { emulator::use({emulator::Order::up, 0, false, true}); }

}  // namespace dex::gpu
