#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <new>

#include "kernels/emulator/block.h"

namespace dex::emulator {

Place place;
Block block;

namespace {

constexpr std::size_t kStackBytes = 64 * 1024;

// The thread of the program that launched.
struct Launcher {
  Context context;
  void* tsan = nullptr;
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  std::size_t size = 0;
};
Launcher launcher;
Edge begin, end, fences;
Schedule wanted;
unsigned ends = 0;
std::mutex one_launch;

// A switch has come back here, or begun here; the first of a block comes from the launcher.
void arrive(void* fake_stack) {
  if (!__sanitizer_finish_switch_fiber) return;
  const void* bottom;
  std::size_t size;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
  if (launcher.bottom == nullptr) launcher.bottom = bottom, launcher.size = size;
}

void switch_to_launcher() {
  Thread& from = running();
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(&from.fake_stack, launcher.bottom, launcher.size);
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(launcher.tsan, 1);
  switch_context(from.context, launcher.context);
  arrive(from.fake_stack);
}

void enter(int next, Context& from, void** fake_stack) {
  block.running = next;
  Thread& to = running();
  place.thread = to.index;
  const Stack stack = block.pool->stacks[next];
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(fake_stack, stack.bottom, stack.size);
  // 1: the switch itself orders nothing
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(to.tsan, 1);
  switch_context(from, to.context);
}

std::uint64_t next_random() {
  std::uint64_t z = block.random += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

int take_ready() {
  constexpr unsigned kRing = 2 * kMaxThreads;
  if (block.schedule.order == Order::up) return block.ready[block.first++ % kRing];
  if (block.schedule.order == Order::random) {
    const unsigned chosen = block.first + unsigned(next_random() % (block.last - block.first));
    std::swap(block.ready[chosen % kRing], block.ready[(block.last - 1) % kRing]);
  }
  return block.ready[--block.last % kRing];
}

void switch_to_next() {
  if (block.first == block.last) return switch_to_launcher();
  const int next = take_ready();
  if (next == block.running) return;
  Thread& from = running();
  enter(next, from.context, &from.fake_stack);
  arrive(from.fake_stack);
}

void exit_thread() {
  check_copies_done();
  running().exited = true;
  ++block.exited;
  leave_meetings();
  end.post();
  switch_to_next();
}

// A fiber serves the thread of its number in block after block.
void fiber_main() {
  arrive(nullptr);
  for (;;) {
    begin.take();
    try {
      (*block.body)();
    } catch (...) {
      fail(Site{}, "an exception left the kernel");
    }
    exit_thread();
  }
}

void set_up_block(int size) {
  block.pool->grow(size);
  block.size = size;
  block.exited = 0;
  block.first = block.last = 0;
  ++block.number;
  for (int w = 0; w * kLanes < size; ++w) {
    block.warp[w].meetings = 0;
    block.warp[w].gathered = 0;
    const int lanes = std::min(kLanes, size - w * kLanes);
    block.warp[w].lanes = lanes == kLanes ? ~0u : (1u << lanes) - 1;
    block.warp[w].absent = ~block.warp[w].lanes;
  }
  for (Barrier& barrier : block.barrier) barrier = {};
  block.count[0] = block.count[1] = 0;
  const dim3& b = place.block_size;
  for (int i = 0; i < size; ++i) {
    Thread& thread = block.pool->threads[i];
    const auto n = unsigned(i);
    thread.index = {n % b.x, n / b.x % b.y, n / (b.x * b.y)};
    thread.exited = false;
    make_ready(i);
  }
  clear_shared();
}

bool is_left_out(const dim3& grid, unsigned x, unsigned y, unsigned z) {
  const auto all = std::uint64_t{grid.x} * grid.y * grid.z;
  const auto number = x + grid.x * (y + std::uint64_t{grid.y} * z);
  return ends > 0 && number >= ends && number + ends < all;
}

// False where the block did not end.
bool run_block(int size) {
  set_up_block(size);
  begin.post();
  launcher.bottom = nullptr;
  launcher.tsan = __tsan_get_current_fiber ? __tsan_get_current_fiber() : nullptr;
  enter(take_ready(), launcher.context, &launcher.fake_stack);
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(launcher.fake_stack, nullptr, nullptr);
  return block.text == nullptr && block.refused == 0 && block.exited == size;
}

// What threads did that will never end is before what the launcher does next.
void settle(Pool& pool) {
  for (int i = 0; i < block.size && __tsan_switch_to_fiber; ++i) {
    __tsan_switch_to_fiber(pool.threads[i].tsan, 1);
    end.post();
  }
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(launcher.tsan, 1);
  end.take();
}

}  // namespace

void make_ready(int thread) {
  block.ready[block.last++ % (2 * kMaxThreads)] = std::uint16_t(thread);
}

void make_ready(int warp, unsigned lanes) {
  for (; lanes != 0; lanes &= lanes - 1) make_ready(warp * kLanes + __builtin_ctz(lanes));
}

void wait(const char* what, Site site) {
  running().waits_at = what;
  running().site = site;
  switch_to_next();
}

void fail(Site site, const char* text, long long a, long long b) {
  block.text = text, block.site = site, block.a = a, block.b = b;
  switch_to_launcher();
  __builtin_unreachable();
}

void refuse(int error) {
  block.refused = error;
  switch_to_launcher();
  __builtin_unreachable();
}

void run_ends(unsigned blocks) { ends = blocks; }
void use(const Schedule& schedule) { wanted = block.schedule = schedule; }

void fence() {
  fences.take();
  fences.post();
}

int run(dim3 grid, dim3 block_size, std::size_t dynamic_shared_bytes,
        const std::function<void()>& body, bool opted_in) {
  if (!is_launchable(grid, block_size)) return kInvalidConfiguration;
  const std::size_t limit = opted_in ? device_in_use().shared_opt_in : device_in_use().shared;
  if (dynamic_shared_bytes > limit) return kInvalidValue;
  const std::lock_guard lock(one_launch);
  static std::unique_ptr<Pool> lasting;
  std::vector<std::unique_ptr<Pool>> apart;
  block.schedule = wanted;
  block.random = wanted.seed;
  block.body = &body;
  block.dynamic_bytes = dynamic_shared_bytes;
  block.shared_limit = limit;
  block.refused = 0;
  block.text = nullptr;
  place.block_size = block_size, place.grid_size = grid;
  const bool separate = wanted.separate_blocks && thread_sanitizer();
  const int size = int(block_size.x * block_size.y * block_size.z);
  // ThreadSanitizer ends a program with more than 8128 threads.
  if (separate && std::uint64_t{grid.x} * grid.y * grid.z * unsigned(size) > 6000)
    throw std::invalid_argument("separate_blocks: more than 6000 threads in a launch");
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        if (is_left_out(grid, x, y, z)) continue;
        auto& pool = separate ? apart.emplace_back() : lasting;
        if (!pool) pool = std::make_unique<Pool>();
        block.pool = pool.get();
        place.block = {x, y, z};
        if (run_block(size)) {
          if (!separate) end.take();
          continue;
        }
        const std::string report = block.refused != 0      ? ""
                                   : block.text != nullptr ? describe_fault()
                                                           : describe_deadlock();
        settle(*pool);
        lasting.reset();  // with the fibers that did not end
        if (block.refused != 0) return block.refused;
        throw Fault(report);
      }
  end.take();
  return 0;
}

Pool::Pool() : threads(kMaxThreads), edges(new BlockEdges) { map_arena(*this); }

void Pool::grow(int count) {
  if (int(copies.size()) < count) copies.resize(count);
  while (int(stacks.size()) < count) {
    const std::size_t i = stacks.size();
    stacks.push_back(map_stack());
    threads[i].context = make_context(stacks[i], i % 16 * 272, fiber_main);
    if (__tsan_create_fiber) threads[i].tsan = __tsan_create_fiber(0);
  }
}

Pool::~Pool() {
  unmap_arena(*this);
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    if (__tsan_destroy_fiber) __tsan_destroy_fiber(threads[i].tsan);
    free_context(threads[i].context);
    unpoison(stacks[i].bottom, stacks[i].size);
    unmap(stacks[i]);
  }
}

Stack map_stack() {
  const auto page = std::size_t(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, page + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) throw std::bad_alloc();
  return {static_cast<char*>(memory) + page, kStackBytes};
}

void unmap(Stack stack) {
  const auto page = std::size_t(sysconf(_SC_PAGESIZE));
  munmap(stack.bottom - page, page + stack.size);
}

}  // namespace dex::emulator
