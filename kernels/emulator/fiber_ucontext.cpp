// Any POSIX system: a switch costs a system call.
#include <ucontext.h>

#include <cstdlib>

#include "kernels/emulator/fiber.h"

namespace dex::emulator {

Context make_context(Stack stack, std::size_t stagger, void (*entry)()) {
  auto* state = new ucontext_t;
  if (getcontext(state) != 0) std::abort();
  state->uc_stack.ss_sp = stack.bottom;
  state->uc_stack.ss_size = stack.size - stagger / 16 * 16;
  state->uc_link = nullptr;
  makecontext(state, entry, 0);
  return {state};
}

void free_context(Context context) { delete static_cast<ucontext_t*>(context.state); }

void switch_context(Context& from, const Context& to) {
  ucontext_t here;
  ucontext_t* save = from.state != nullptr ? static_cast<ucontext_t*>(from.state) : &here;
  from.state = save;
  swapcontext(save, static_cast<ucontext_t*>(to.state));
  if (save == &here) from.state = nullptr;
}

}  // namespace dex::emulator
