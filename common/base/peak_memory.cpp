#include "common/base/peak_memory.h"

#include <sys/resource.h>

namespace dex {

std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace dex
