// Memory in huge pages where the system gives them: whoever streams hundreds of megabytes for every
// token spends more on looking up small pages than on the bytes.
#pragma once
#include <cstddef>

namespace dex {

class HugeMemory {
 public:
  // pages are touched only as they are used; throws std::bad_alloc
  explicit HugeMemory(std::size_t size);
  ~HugeMemory();
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_, mapped_;
  void* map_;
  char* data_;
};

}  // namespace dex
