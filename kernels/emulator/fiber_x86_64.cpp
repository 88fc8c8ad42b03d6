#include <cstdint>

#include "kernels/emulator/fiber.h"

// Saves the registers a call must keep, changes stacks, restores. The state is the stack pointer.
asm(R"(
.text
.type dex_emulator_switch, @function
.hidden dex_emulator_switch
dex_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size dex_emulator_switch, . - dex_emulator_switch
)");
extern "C" void dex_emulator_switch(void** save, void* load);

namespace dex::emulator {

Context make_context(Stack stack, std::size_t stagger, void (*entry)()) {
  auto* top = reinterpret_cast<std::uint64_t*>(stack.bottom + stack.size - stagger / 16 * 16);
  // entry's return address, where unwinding ends; a call leaves the stack 8 off a multiple of 16
  *--top = 0;
  *--top = reinterpret_cast<std::uint64_t>(entry);
  for (int saved = 0; saved < 6; ++saved) *--top = 0;
  return {top};
}

void free_context(Context) {}

void switch_context(Context& from, const Context& to) {
  dex_emulator_switch(&from.state, to.state);
}

}  // namespace dex::emulator
