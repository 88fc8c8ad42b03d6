#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "kernels/ceil_div.h"
#include "kernels/emulator/block.h"

namespace dex::emulator {
namespace {

// Room for all a block may have with the gaps between its variables, which AddressSanitizer guards.
constexpr std::size_t kArenaBytes = 1 << 20, kGap = 128;

// Floats and pairs of bf16 read from it are NaN; orders differ in it, so that integers read from it
// show as well.
unsigned unwritten() { return block.schedule.order == Order::up ? 0xffffffffu : 0x7fc07fc0u; }

char* take(std::size_t bytes, std::size_t alignment) {
  const std::size_t start = round_up(block.arena_used, alignment);
  const std::size_t words = (bytes + 3) / 4;
  char* memory = block.pool->arena + start;
  unpoison(memory, bytes);
  for (std::size_t i = 0; i < words; ++i) reinterpret_cast<unsigned*>(memory)[i] = unwritten();
  block.arena_used = start + words * 4 + kGap;
  return memory;
}

}  // namespace

void map_arena(Pool& pool) {
  void* memory =
      mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  pool.arena = static_cast<char*>(memory);
}

void unmap_arena(Pool& pool) {
  unpoison(pool.arena, kArenaBytes);
  munmap(pool.arena, kArenaBytes);
}

void clear_shared() {
  poison(block.pool->arena, kArenaBytes);
  block.arena_used = kGap;
  block.static_bytes = 0;
  take(block.dynamic_bytes, kGap);
}

void* dynamic_shared() { return block.pool->arena + kGap; }

void* shared(Slot& slot, std::size_t bytes, std::size_t alignment, Site site) {
  if (slot.block == block.number) return slot.memory;
  block.static_bytes += bytes;
  if (block.static_bytes > kStaticSharedBytes)
    fail(site, "%lld bytes of static shared memory, of %lld",
         static_cast<long long>(block.static_bytes), kStaticSharedBytes);
  if (block.static_bytes + block.dynamic_bytes > block.shared_limit) refuse(kInvalidValue);
  slot.block = block.number;
  return slot.memory = take(bytes, alignment < 16 ? 16 : alignment);
}

bool is_shared(const void* memory, std::size_t bytes) {
  const char* start = static_cast<const char*>(memory);
  return start >= block.pool->arena && start + bytes <= block.pool->arena + kArenaBytes;
}

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes > 0 ? bytes : 1) != 0) throw std::bad_alloc();
  for (std::size_t i = 0; i < bytes; ++i)
    static_cast<unsigned char*>(memory)[i] = static_cast<unsigned char>(unwritten() >> i % 4 * 8);
  return memory;
}

void release(void* memory) { std::free(memory); }

bool copies_early() { return !block.schedule.late_copies; }

void keep(Copy copy, Site site) {
  Copies& copies = block.pool->copies[block.running];
  if (copies.issued - copies.made == Copies::kMost)
    fail(site, "more than %lld copies under way in one thread", Copies::kMost);
  copies.pending[copies.issued++ % Copies::kMost] = {copy, site, copies.groups};
}

void close_group() { ++block.pool->copies[block.running].groups; }

Copy due(int groups) {
  Copies& copies = block.pool->copies[block.running];
  if (copies.made == copies.issued) return {};
  const PendingCopy& next = copies.pending[copies.made % Copies::kMost];
  if (next.group + unsigned(groups) >= copies.groups) return {};
  ++copies.made;
  return next.copy;
}

void check_copies_done() {
  Copies& copies = block.pool->copies[block.running];
  if (copies.made != copies.issued)
    fail(copies.pending[copies.made % Copies::kMost].site,
         "cp_async16: its thread exits without having waited for it");
}

}  // namespace dex::emulator
