// A shared library between a program and libc: the system gives no more threads, nor processes,
// from the k-th on. Linked into test programs, where this function steers it; other programs get it
// by LD_PRELOAD, steered by the variable DEX_FAULT_THREAD.
#pragma once

namespace dex::test {

// Of the threads and processes begun from now on the first `given` are had, the others fail with
// EAGAIN; -1: all are had.
void give_threads(int given);

}  // namespace dex::test
