// The running block, for the runtime's own files. Code here runs on fibers: it must not allocate,
// and must not call what ThreadSanitizer intercepts (memcpy, std::sort ...), which would see its
// accesses as the kernel's.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/emulator/fiber.h"
#include "kernels/emulator/runtime.h"
#include "kernels/emulator/sanitizers.h"

namespace dex::emulator {

constexpr int kMaxThreads = 1024, kLanes = 32, kBarriers = 16;
constexpr std::size_t kStaticSharedBytes = 48 * 1024;  // more does not compile

// CUDA's numbers of a launch that does not start.
constexpr int kInvalidValue = 1, kInvalidConfiguration = 9;

// Small: threads are visited in turn.
struct Thread {
  Context context;
  void* fake_stack = nullptr;  // AddressSanitizer's
  void* tsan = nullptr;        // ThreadSanitizer's context
  void* posted = nullptr;      // to the lanes it meets
  uint3 index{};
  bool exited = false;
  Site site;                       // where it waits
  const char* waits_at = nullptr;  // for what
};

// Lanes of a warp that wait for each other under one mask.
struct Meeting {
  unsigned mask = 0;     // named by all
  unsigned arrived = 0;  // who did
  const char* what = nullptr;
  Site site;
  void (*exchange)(const Meeting&) = nullptr;  // done by one of the warp for all
};

// What a thread asks of a barrier.
struct BarrierCall {
  int number = 0, threads = 0;
  bool waits = true;      // bar_arrive does not
  bool of_block = false;  // __syncthreads
  const char* name = "";
  Site site;
};

struct Warp {
  unsigned lanes = 0;   // that the block has
  unsigned absent = 0;  // that it has not, or that exited
  int meetings = 0;
  Meeting meeting[kLanes];
  unsigned gathered = 0;   // lanes that are at a barrier while others are still to come
  int predicates = 0;      // true ones they brought
  BarrierCall call;        // which
  unsigned char turn = 0;  // of the barrier when the whole warp was counted
};

struct Barrier {
  int arrived = 0;
  unsigned warps = 0;  // that wait
  BarrierCall call;    // of the first warp
};

struct PendingCopy {
  Copy copy;
  Site site;
  unsigned group = 0;
};
struct Copies {
  static constexpr unsigned kMost = 128;
  PendingCopy pending[kMost];
  unsigned made = 0, issued = 0, groups = 0;
};

// All that threads are ordered by.
struct BlockEdges {
  Edges barrier[kBarriers];
  Edges gather[kMaxThreads / kLanes];
  Edges meeting[kMaxThreads];  // of the lowest thread under the mask
};

// Fibers and memory of blocks. One serves all, except that blocks kept apart have one each.
struct Pool {
  Pool();
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  void grow(int threads);

  std::vector<Thread> threads;
  std::vector<Stack> stacks;
  std::vector<Copies> copies;  // grows with the stacks
  std::unique_ptr<BlockEdges> edges;
  char* arena = nullptr;
};

struct Block {
  // Scheduling: threads that can go on, in a ring.
  std::uint16_t ready[2 * kMaxThreads] = {};
  unsigned first = 0, last = 0;
  int running = 0, size = 0, exited = 0;
  Pool* pool = nullptr;
  const std::function<void()>* body = nullptr;
  Schedule schedule;
  std::uint64_t random = 0;

  Warp warp[kMaxThreads / kLanes];
  Barrier barrier[kBarriers];
  int count[2] = {};  // of __syncthreads_count, by turn

  std::uint64_t number = 0;  // unique
  std::size_t dynamic_bytes = 0, static_bytes = 0, arena_used = 0;
  std::size_t shared_limit = 0;  // of static and dynamic together

  int refused = 0;  // the CUDA error of the launch, found as it ran

  // The Fault to be thrown, if text is set.
  const char* text = nullptr;
  Site site;
  long long a = 0, b = 0;
};
extern Block block;

inline Thread& running() { return block.pool->threads[block.running]; }
inline Warp& running_warp() { return block.warp[block.running / kLanes]; }
inline Thread& lane_of_warp(int lane) {
  return block.pool->threads[block.running / kLanes * kLanes + lane];
}
inline int running_lane() { return block.running % kLanes; }

void make_ready(int thread);
// Makes lanes of the running thread's warp ready, lowest first.
void make_ready(int warp, unsigned lanes);
// Lets others run; goes on in its turn once made ready.
void wait(const char* what, Site site);

// Waits for the lanes of the mask; orders_memory as __syncwarp does.
void meet(unsigned mask, const char* what, void* posted, void (*exchange)(const Meeting&),
          Site site, bool orders_memory = false);
// The running lane exits: who waits for it need not.
void leave_meetings();

const Device& device_in_use();
// Whether the device takes a grid and a block of this shape.
bool is_launchable(const dim3& grid, const dim3& block_size);

void map_arena(Pool& pool);
void unmap_arena(Pool& pool);
void clear_shared();
void check_copies_done();

// Ends a launch that a device would not have begun.
[[noreturn]] void refuse(int error);

std::string describe_fault();
std::string describe_deadlock();

}  // namespace dex::emulator
