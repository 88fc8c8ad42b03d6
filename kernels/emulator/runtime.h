// What the emulator's side of gpu.h and CUDA's names stand on; called by the threads of a running
// block.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/emulator/emulator.h"

namespace dex::emulator {

// A place in the source: as a last parameter `Site site = Site::here()` it is the caller's.
struct Site {
  const char* file = "";
  int line = 0;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// The device in use, as a number of CUDA's; its runtime's part of opting in.
int device_number();
int opt_in(const void* kernel);  // 0
bool has_opted_in(const void* kernel);

struct Place {
  uint3 thread{}, block{};
  dim3 block_size, grid_size;
};
extern Place place;  // of the running thread

// A SHARED variable: one per place in the source, its memory one per block.
struct Slot {
  std::uint64_t block = 0;
  void* memory = nullptr;
};
void* shared(Slot& slot, std::size_t bytes, std::size_t alignment, Site site);
void* dynamic_shared();
bool is_shared(const void* memory, std::size_t bytes);

// Ends the launch with a Fault. `text` may take up to two %lld; it must outlive the launch.
[[noreturn]] void fail(Site site, const char* text, long long a = 0, long long b = 0);

// Barrier `number` of the block, by whole warps: of `threads` threads. wait = false goes on once
// its own warp is there.
void named_barrier(int number, int threads, bool wait, Site site);
// __syncthreads and its kin: how many threads of the block came with `predicate`.
int block_barrier(bool predicate, Site site);

// Operations of the lanes of a warp; each waits for the lanes of the mask that have not exited.
enum class Shuffle : std::uint8_t { from, up, down, exclusive_or };
enum class Reduce : std::uint8_t { add, min, max, min_signed, max_signed };
void warp_barrier(unsigned mask, Site site);
std::uint64_t shuffle(Shuffle kind, unsigned mask, std::uint64_t value, int operand, int width,
                      Site site);
unsigned ballot(unsigned mask, bool predicate, const char* name, Site site);
unsigned reduce(Reduce kind, unsigned mask, unsigned value, Site site);
void mma_bf16(float* d, const std::uint32_t* a, const std::uint32_t* b, Site site);
void mma_s8(std::int32_t* d, const std::uint32_t* a, const std::uint32_t* b, Site site);
// `row` is the lane's 16 bytes.
void ldmatrix(std::uint32_t* r, const std::uint32_t* row, bool transposed, Site site);

// A cp.async of this thread: from is null to write zeros. The caller makes the copies, so that
// sanitizers see them there.
struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
};
bool copies_early();  // at once; else keep() holds a copy until due() gives it out
void keep(Copy copy, Site site);
void close_group();
// The next copy to be made before all but the last `groups` groups are done; to is null when there
// is none.
Copy due(int groups);

// What __threadfence orders, under ThreadSanitizer.
void fence();

}  // namespace dex::emulator
