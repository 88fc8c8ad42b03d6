// Tiny tensors gain nothing from threads, and lose much on a busy machine.
#include <ATen/Parallel.h>

namespace {
const bool one_thread = [] {
  at::set_num_threads(1);
  return true;
}();
}  // namespace
