// Words that are one piece of a vocabulary: most of any text. They need no merging, and finding
// them takes no lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/token.h"

namespace dex {

class WholeWords {
 public:
  // pieces[id]; empty ones are never found.
  explicit WholeWords(std::vector<std::string> pieces);

  // The piece that `word` is, or -1. That text so written gives this id is not certain yet.
  Token piece(std::string_view word) const;

  // The piece that `word` is, if `tokenize(word)`, the long way, gives just that id; otherwise -1.
  // Each piece is tokenized when it is first met and then known. Thread-safe if `tokenize` is.
  template <typename Tokenize>
  Token find(std::string_view word, Tokenize tokenize) const {
    const Token id = piece(word);
    if (id < 0) return -1;
    std::atomic<Known>& known = known_[id];
    Known value = known.load(std::memory_order_relaxed);
    if (value == Known::not_yet) {
      value = tokenize(word) == std::vector<Token>{id} ? Known::whole : Known::parts;
      known.store(value, std::memory_order_relaxed);  // threads that race write the same
    }
    return value == Known::whole ? id : -1;
  }

 private:
  enum class Known : std::uint8_t { not_yet, whole, parts };
  struct Slot {
    std::uint32_t hash = 0;
    Token id = -1;
  };

  std::vector<std::string> pieces_;
  std::vector<Slot> slots_;  // open addressing; size is a power of two
  std::unique_ptr<std::atomic<Known>[]> known_;
  std::size_t longest_ = 0;
};

}  // namespace dex
