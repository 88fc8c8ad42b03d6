#include "common/text/whole_words.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace dex {
namespace {

std::size_t hash_of(std::string_view word) { return std::hash<std::string_view>()(word); }

}  // namespace

WholeWords::WholeWords(std::vector<std::string> pieces)
    : pieces_(std::move(pieces)),
      slots_(std::bit_ceil(pieces_.size() * 2 + 2)),
      known_(std::make_unique<std::atomic<Known>[]>(pieces_.size())) {
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    if (pieces_[id].empty() || piece(pieces_[id]) >= 0) continue;
    longest_ = std::max(longest_, pieces_[id].size());
    const std::size_t hash = hash_of(pieces_[id]);
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].id >= 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {std::uint32_t(hash >> 32), Token(id)};
  }
}

Token WholeWords::piece(std::string_view word) const {
  if (word.size() > longest_) return -1;
  const std::size_t hash = hash_of(word);
  const auto tag = std::uint32_t(hash >> 32);
  for (std::size_t at = hash & (slots_.size() - 1); slots_[at].id >= 0;
       at = (at + 1) & (slots_.size() - 1))
    if (slots_[at].hash == tag && pieces_[slots_[at].id] == word) return slots_[at].id;
  return -1;
}

}  // namespace dex
