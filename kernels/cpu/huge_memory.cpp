#include "kernels/huge_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "kernels/ceil_div.h"

namespace dex {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t whole_pages(std::size_t size) { return round_up(size, kHugePage); }

}  // namespace

HugeMemory::HugeMemory(std::size_t size) : size_(whole_pages(size)), mapped_(size_ + kHugePage) {
  map_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
              -1, 0);
  if (map_ == MAP_FAILED) throw std::bad_alloc();
  const auto address = reinterpret_cast<std::uintptr_t>(map_);
  data_ = static_cast<char*>(map_) + (whole_pages(address) - address);
  madvise(data_, size_, MADV_HUGEPAGE);  // a refusal costs speed only
}

HugeMemory::~HugeMemory() { munmap(map_, mapped_); }

}  // namespace dex
