// How this process keeps freed memory.
#pragma once
#include <cstdlib>  // says whether this is glibc
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace dex {

// Large tensors are made and dropped every moment in training: what one gave back serves the next,
// without the kernel clearing its pages again. Memory stays at its peak.
inline void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace dex
