#include "common/text/bpe_model.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace dex {
namespace {

std::uint64_t key_of(Token left, Token right) {
  return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
}

std::size_t slot_of(std::uint64_t key, std::size_t slots) {
  return (key * 0x9E3779B97F4A7C15u >> 32) & (slots - 1);
}

struct Symbol {
  Token id;  // -1 once it is part of its left neighbour
  std::int32_t previous, next;
};

// Reused from word to word: a word's merging allocates nothing.
struct Workspace {
  std::vector<Symbol> symbols;
  // rank << 32 | place of the left symbol: lowest rank first, then leftmost
  std::vector<std::uint64_t> heap;
};

}  // namespace

BpeModel::BpeModel(std::vector<std::string> pieces, const std::vector<Merge>& merges,
                   bool whole_words_first)
    : rules_(std::bit_ceil(merges.size() * 2 + 2)),
      words_(std::move(pieces)),
      whole_words_first_(whole_words_first) {
  for (int byte = 0; byte < 256; ++byte) byte_ids_[byte] = words_.piece(std::string(1, char(byte)));
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t key = key_of(merges[rank].left, merges[rank].right);
    std::size_t slot = slot_of(key, rules_.size());
    while (rules_[slot].key != kNone && rules_[slot].key != key)
      slot = (slot + 1) & (rules_.size() - 1);
    rules_[slot] = {key, std::int32_t(rank), merges[rank].result};
  }
}

const BpeModel::Rule* BpeModel::find(Token left, Token right) const {
  const std::uint64_t key = key_of(left, right);
  for (std::size_t slot = slot_of(key, rules_.size());; slot = (slot + 1) & (rules_.size() - 1)) {
    if (rules_[slot].key == key) return &rules_[slot];
    if (rules_[slot].key == kNone) return nullptr;
  }
}

void BpeModel::append(std::string_view word, std::vector<Token>& ids) const {
  const auto merged = [this](std::string_view text) {
    std::vector<Token> made;
    merge(text, made);
    return made;
  };
  const Token whole = whole_words_first_ ? words_.piece(word) : words_.find(word, merged);
  if (whole >= 0)
    ids.push_back(whole);
  else
    merge(word, ids);
}

void BpeModel::merge(std::string_view word, std::vector<Token>& ids) const {
  static thread_local Workspace scratch;
  auto& [symbols, heap] = scratch;
  symbols.clear();
  heap.clear();
  for (const char byte : word) {
    const Token id = byte_ids_[static_cast<unsigned char>(byte)];
    const auto place = std::int32_t(symbols.size());
    if (id >= 0) symbols.push_back({id, place - 1, place + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  const auto rule_at = [&](std::int32_t place) -> const Rule* {
    const Symbol& left = symbols[place];
    if (left.id < 0 || left.next < 0) return nullptr;
    return find(left.id, symbols[left.next].id);
  };
  const auto offer = [&](std::int32_t place) {
    if (const Rule* rule = rule_at(place)) {
      heap.push_back(std::uint64_t(rule->rank) << 32 | std::uint32_t(place));
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  for (std::size_t place = 0; place < symbols.size(); ++place) offer(std::int32_t(place));

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t best = heap.back();
    heap.pop_back();
    const auto place = std::int32_t(best & 0xFFFFFFFFu);
    const Rule* rule = rule_at(place);
    if (!rule || std::uint64_t(rule->rank) != best >> 32) continue;  // the pair has changed since
    Symbol& left = symbols[place];
    Symbol& right = symbols[left.next];
    left.id = rule->result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = place;
    offer(place);
    if (left.previous >= 0) offer(left.previous);
  }
  for (std::int32_t place = 0; place >= 0; place = symbols[place].next)
    ids.push_back(symbols[place].id);
}

}  // namespace dex
