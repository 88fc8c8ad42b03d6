#include "common/model/weight_memory.h"

#include <memory>
#include <mutex>

#include "kernels/ceil_div.h"
#include "kernels/huge_memory.h"

namespace dex {
namespace {

constexpr std::size_t kBlock = 64 << 20, kAlignment = 64;

// Freed when the last tensor in it is.
struct Block {
  explicit Block(std::size_t size) : memory(size) {}
  HugeMemory memory;
  std::size_t used = 0;

  void* take(std::size_t size) {
    if (memory.size() - used < size) return nullptr;
    void* taken = memory.data() + used;
    used = std::min(memory.size(), round_up(used + size, kAlignment));
    return taken;
  }
};

}  // namespace

at::Tensor empty_weights(const std::vector<std::int64_t>& shape, at::ScalarType type) {
  static std::mutex mutex;
  static std::weak_ptr<Block> current;
  std::size_t size = at::elementSize(type);
  for (std::int64_t extent : shape) size *= std::size_t(extent);
  const std::lock_guard lock(mutex);
  std::shared_ptr<Block> block = current.lock();
  void* memory = block ? block->take(size) : nullptr;
  if (!memory) {
    block = std::make_shared<Block>(std::max(size, kBlock));
    memory = block->take(size);
    current = block;
  }
  return at::from_blob(memory, shape, [block](void*) {}, at::TensorOptions().dtype(type));
}

}  // namespace dex
