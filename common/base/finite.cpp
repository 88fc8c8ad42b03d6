#include "common/base/finite.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace dex {
namespace {

// Whether some word has all bits of `exponent` set, as NaN and infinity have and nothing else: then
// adding the exponent's lowest bit carries into the sign's place. A model's load waits for this: no
// branch, whole vectors.
template <typename Word>
bool has_full_exponent(std::span<const std::byte> bytes, Word exponent) {
  const Word lowest = exponent & static_cast<Word>(~exponent + 1);
  Word seen = 0;
  std::array<Word, 64> block{};  // of a size that the compiler knows: then it takes vectors
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), sizeof block))) {
    if (bytes.size() < sizeof block) block.fill(0);
    std::memcpy(block.data(), bytes.data(), std::min(bytes.size(), sizeof block));
    for (const Word word : block) seen |= static_cast<Word>((word & exponent) + lowest);
  }
  return seen >> (8 * sizeof(Word) - 1) != 0;
}

}  // namespace

bool all_finite(const StoredTensor& tensor) {
  switch (tensor.type) {
    case StoredType::f64:
      return !has_full_exponent<std::uint64_t>(tensor.bytes, 0x7ff0000000000000u);
    case StoredType::f32:
      return !has_full_exponent<std::uint32_t>(tensor.bytes, 0x7f800000u);
    case StoredType::bf16:
      return !has_full_exponent<std::uint16_t>(tensor.bytes, 0x7f80u);
    case StoredType::f16:
      return !has_full_exponent<std::uint16_t>(tensor.bytes, 0x7c00u);
    default:
      return true;  // whole numbers
  }
}

}  // namespace dex
