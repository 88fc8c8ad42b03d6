// The merges of byte-level BPE: the bytes of one word to ids. Time is O(n log n) in the word's
// length.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/token.h"
#include "common/text/whole_words.h"

namespace dex {

struct Merge {
  Token left, right, result;
};

class BpeModel {
 public:
  // pieces[id] are the bytes of an id that text can give; empty for ids that it cannot (holes,
  // added tokens). `merges` by rank. With `whole_words_first` a word that is a piece is that id
  // whatever the merges say.
  BpeModel(std::vector<std::string> pieces, const std::vector<Merge>& merges,
           bool whole_words_first);

  // A byte without an id is dropped, as the reference does. Thread-safe.
  void append(std::string_view word, std::vector<Token>& ids) const;

 private:
  struct Rule {  // one slot of the open-addressing table: key is left << 32 | right
    std::uint64_t key = kNone;
    std::int32_t rank = 0;
    Token result = 0;
  };
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  const Rule* find(Token left, Token right) const;
  void merge(std::string_view word, std::vector<Token>& ids) const;

  std::vector<Rule> rules_;  // size is a power of two
  std::array<Token, 256> byte_ids_;
  WholeWords words_;
  bool whole_words_first_;
};

}  // namespace dex
