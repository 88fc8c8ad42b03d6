// What the sanitizers must be told. The runtime is built without any and linked into every kind of
// program: calls go through weak symbols that are null where a sanitizer is absent.
#pragma once
#include <cstddef>

extern "C" {
#define DEX_WEAK __attribute__((weak))
DEX_WEAK void __asan_poison_memory_region(const volatile void* at, std::size_t bytes);
DEX_WEAK void __asan_unpoison_memory_region(const volatile void* at, std::size_t bytes);
DEX_WEAK void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom,
                                             std::size_t size);
DEX_WEAK void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom,
                                              std::size_t* size);
DEX_WEAK void* __tsan_get_current_fiber();
DEX_WEAK void* __tsan_create_fiber(unsigned flags);
DEX_WEAK void __tsan_destroy_fiber(void* fiber);
DEX_WEAK void __tsan_switch_to_fiber(void* fiber, unsigned flags);
DEX_WEAK void __tsan_acquire(void* object);
DEX_WEAK void __tsan_release(void* object);
#undef DEX_WEAK
}

namespace dex::emulator {

inline void poison(const void* at, std::size_t bytes) {
  if (__asan_poison_memory_region) __asan_poison_memory_region(at, bytes);
}
inline void unpoison(const void* at, std::size_t bytes) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(at, bytes);
}

// An object through which threads are ordered: what one did before post is before what another does
// after take.
struct Edge {
  unsigned long long object = 0;
  void post() {
    if (__tsan_release) __tsan_release(&object);
  }
  void take() {
    if (__tsan_acquire) __tsan_acquire(&object);
  }
};
// A barrier takes two in turn: a thread that is late to take the first would else be ordered after
// what others did since.
struct Edges {
  Edge edge[2];
  unsigned char turn = 0;
};

}  // namespace dex::emulator
