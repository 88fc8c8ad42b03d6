#include "common/weight_memory.h"

#include <sys/mman.h>

#include <memory>
#include <mutex>

#include "common/error.h"

namespace dex {
namespace {

constexpr std::size_t kHugePage = 2 << 20, kAlignment = 64;
constexpr std::size_t kBlock = 64 << 20;  // taken from the system at once; pages of it are touched only as they are used

std::size_t rounded_up(std::size_t size, std::size_t to) { return (size + to - 1) / to * to; }

// Freed when the last tensor in it is.
class Block {
 public:
  explicit Block(std::size_t size) : mapped_(size + kHugePage) {
    map_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(map_ != MAP_FAILED, ExitCode::io, "no memory for {} MiB of weights", size >> 20);
    const auto address = reinterpret_cast<std::uintptr_t>(map_);
    next_ = static_cast<char*>(map_) + (rounded_up(address, kHugePage) - address);
    end_ = next_ + size;
    madvise(next_, size, MADV_HUGEPAGE);  // a refusal costs speed only
  }
  ~Block() { munmap(map_, mapped_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void* take(std::size_t size) {
    if (static_cast<std::size_t>(end_ - next_) < size) return nullptr;
    void* taken = next_;
    next_ += rounded_up(size, kAlignment);
    return taken;
  }

 private:
  std::size_t mapped_;
  void* map_ = nullptr;
  char *next_ = nullptr, *end_ = nullptr;
};

}  // namespace

at::Tensor empty_weights(const std::vector<std::int64_t>& shape, at::ScalarType type) {
  static std::mutex mutex;
  static std::weak_ptr<Block> current;
  std::size_t size = at::elementSize(type);
  for (std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
  const std::lock_guard lock(mutex);
  std::shared_ptr<Block> block = current.lock();
  void* memory = block ? block->take(size) : nullptr;
  if (!memory) {
    block = std::make_shared<Block>(rounded_up(std::max(size, kBlock), kHugePage));
    memory = block->take(size);
    current = block;
  }
  return at::from_blob(memory, shape, [block](void*) {}, at::TensorOptions().dtype(type));
}

}  // namespace dex
