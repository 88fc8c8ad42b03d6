// Stacks the threads of a block run on, and the switch between them. fiber_x86_64.cpp or
// fiber_ucontext.cpp.
#pragma once
#include <cstddef>

namespace dex::emulator {

struct Stack {
  char* bottom = nullptr;
  std::size_t size = 0;
};
Stack map_stack();  // with a guard page below; std::bad_alloc
void unmap(Stack stack);

// A flow of control that is not running.
struct Context {
  void* state = nullptr;
};
// The first switch to the context calls entry, which must not return. `stagger` moves the stack's
// top: equal depths on stacks of one alignment would meet in the same cache sets.
Context make_context(Stack stack, std::size_t stagger, void (*entry)());
void free_context(Context context);
void switch_context(Context& from, const Context& to);

}  // namespace dex::emulator
