// A renderer whose ids can be read back: a byte of text is its value plus 10, a message stands
// between controls, its reasoning in braces.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "data/prepare.h"
#include "data/sample.h"
#include "data/token_shards.h"

namespace dex::test {

constexpr Token kUser = 1, kAssistant = 2, kSystem = 3, kEnd = 4;

inline RenderedChat render_bytes(std::span<const Message> messages) {
  RenderedChat chat;
  const auto add = [&](Token id, bool target) {
    chat.tokens.push_back(id);
    chat.supervised.push_back(target);
  };
  for (const Message& message : messages) {
    const bool answer = message.role == "assistant";
    const bool target = answer && message.target;
    add(answer ? kAssistant : message.role == "user" ? kUser : kSystem, false);
    const std::string thoughts = message.reasoning.empty() ? "" : "{" + message.reasoning + "}";
    for (unsigned char byte : thoughts + message.content) add(10 + byte, target);
    add(kEnd, target);
  }
  return chat;
}

inline Renderer byte_renderer() {
  return {render_bytes, "/no/model", "tokenizer", "bytes", "template", 266, true};
}

// The text of a sample with targets in [], ends as '|', other controls as '#'.
inline std::string marked(const Sample& sample) {
  std::string text;
  bool inside = false;
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    if ((sample.supervised[i] != 0) != inside) text += inside ? ']' : '[';
    inside = sample.supervised[i] != 0;
    const Token id = sample.tokens[i];
    text += id == kEnd ? '|' : id < 10 ? '#' : char(id - 10);
  }
  return text + (inside ? "]" : "");
}

// Every sample of a split, marked.
inline std::vector<std::string> texts(const std::filesystem::path& out, const std::string& split) {
  const auto shards = TokenShards::open(out, split);
  std::vector<std::string> all;
  for (std::size_t i = 0; i < shards.size(); ++i) all.push_back(marked(shards.sample(i)));
  return all;
}

}  // namespace dex::test
