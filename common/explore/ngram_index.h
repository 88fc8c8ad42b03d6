// Where a text has said the same before: the places whose tokens before them are its last ones.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/token.h"

namespace dex {

class NgramIndex {
 public:
  static constexpr int kLongest = 8;  // tokens that are compared, at most

  struct Match {
    int next = 0;    // position in the text of what came after
    int length = 0;  // tokens alike before it, 1 .. kLongest, kLongest standing for more, too
  };

  void append(Token token);
  std::span<const Token> text() const { return text_; }

  // Places in the text where something came after the last tokens of the text and `path` behind it,
  // each place once: longer matches first, then later ones; at most `most`.
  std::vector<Match> matches(std::span<const Token> path, int most) const;

 private:
  using Key = std::uint64_t;
  static Key key_of(std::span<const Token> tokens);
  std::vector<Token> ending(std::span<const Token> path) const;

  std::vector<Token> text_;
  std::unordered_map<Key, int> latest_;     // by n-gram: the latest position behind one
  std::vector<std::vector<int>> previous_;  // [n - 1][position]: the one before it, or -1
};

}  // namespace dex
