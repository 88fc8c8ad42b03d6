// The strings that stand for one id each, such as <|im_end|>, and where they occur in a raw prompt.
#pragma once
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/token.h"

namespace dex {

class SpecialTokens {
 public:
  struct Match {
    std::size_t at, size;
    Token id;
  };

  void add(const std::string& text, Token id);  // text must not be empty
  std::optional<Token> id_of(std::string_view text) const;
  // The first occurrence at or after `from`; of several that start there, the longest.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  std::unordered_map<std::string, Token> ids_;
  std::set<std::size_t, std::greater<>> sizes_;
  std::string first_bytes_;
};

// Cuts text at special tokens: plain(std::string_view) for what lies between (never empty),
// control(Token) for them.
template <typename Plain, typename Control>
void cut_at_controls(const SpecialTokens& controls, std::string_view text, Plain plain,
                     Control control) {
  std::size_t at = 0;
  while (const auto match = controls.find(text, at)) {
    if (match->at > at) plain(text.substr(at, match->at - at));
    control(match->id);
    at = match->at + match->size;
  }
  if (at < text.size()) plain(text.substr(at));
}

}  // namespace dex
