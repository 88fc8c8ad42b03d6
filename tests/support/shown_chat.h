// Rendered conversations as text that a test can state.
#pragma once
#include <string>
#include <vector>

#include "common/text/chat_template.h"

namespace dex::test {

inline std::string text_of(Token id, const Tokenizer& tokenizer) {
  return tokenizer.is_special(id) || tokenizer.special_id(tokenizer.text_of_id(id)) == id
             ? tokenizer.text_of_id(id)
             : tokenizer.decode(std::vector<Token>{id}, false);
}

// The rendering with controls spelled out and supervised runs in braces.
inline std::string shown(const RenderedChat& chat, const Tokenizer& tokenizer) {
  std::string text;
  bool inside = false;
  for (std::size_t i = 0; i < chat.tokens.size(); ++i) {
    if ((chat.supervised[i] != 0) != inside) text += inside ? "}" : "{";
    inside = chat.supervised[i] != 0;
    text += text_of(chat.tokens[i], tokenizer);
  }
  return text + (inside ? "}" : "");
}

inline std::string whole_text(const RenderedChat& chat, const Tokenizer& tokenizer) {
  std::string text;
  for (const Token id : chat.tokens) text += text_of(id, tokenizer);
  return text;
}

inline std::string supervised_text(const RenderedChat& chat, const Tokenizer& tokenizer) {
  std::string text;
  for (std::size_t i = 0; i < chat.tokens.size(); ++i)
    if (chat.supervised[i]) text += text_of(chat.tokens[i], tokenizer);
  return text;
}

}  // namespace dex::test
