// The merges of byte-level BPE: the bytes of one word to ids. Time is O(n log n) in the word's length.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/token.h"

namespace dex {

struct Merge {
  Token left, right, result;
};

class BpeModel {
 public:
  // pieces[id] are the bytes of an id that text can give; empty for ids that it cannot (holes, added tokens).
  // `merges` by rank. With `whole_words_first` a word that is a piece is that id whatever the merges say.
  BpeModel(std::vector<std::string> pieces, const std::vector<Merge>& merges, bool whole_words_first);

  // A byte without an id is dropped, as the reference does. Thread-safe.
  void append(std::string_view word, std::vector<Token>& ids) const;

 private:
  struct Rule {  // one slot of the open-addressing table: key is left << 32 | right
    std::uint64_t key = kNone;
    std::int32_t rank = 0;
    Token result = 0;
  };
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  enum class Whole : std::uint8_t { unknown, yes, no };

  const Rule* find(Token left, Token right) const;
  void merge(std::string_view word, std::vector<Token>& ids) const;
  bool merges_to(std::string_view word, Token id) const;

  std::vector<std::string> pieces_;
  std::vector<Rule> rules_;  // size is a power of two
  std::array<Token, 256> byte_ids_;
  std::unordered_map<std::string_view, Token> words_;
  // Whether a piece's own bytes merge to it, found out when it is first met: most words are one piece, and need no merging
  // and no lock.
  std::unique_ptr<std::atomic<Whole>[]> whole_;
  std::size_t longest_ = 0;
  bool whole_words_first_;
};

}  // namespace dex
