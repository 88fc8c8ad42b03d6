// Ids and targets of a rendering whose parts have been placed.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/chat_spans.h"
#include "common/text/chat_template.h"

namespace dex {

struct ChatPart {
  enum class Kind { other, reasoning, answer };
  std::size_t message;
  Kind kind;
};

struct PlacedRendering {
  std::string_view text;
  const Frames& frames;
  const std::vector<Span>& spans;      // of the frames' parts
  const std::vector<ChatPart>& parts;  // that the frames name
  std::string_view header;             // the template's before an answer
  std::string_view end_token;          // the model's; "" when it names none
  std::string_view place;              // of the template, for messages
  bool open = false;                   // a prompt: an answer may have no place
};

// Special tokens of the frames become ids, what lies between two of them is tokenised in one piece,
// as transformers does. Targets are the tokens that hold a byte of an answer or of its thoughts,
// and the special token after it. ConversationRefused where an answer has no place of its own, or
// its tokens cannot be told from others.
RenderedChat tokenize_rendering(const PlacedRendering& rendering, std::span<const Message> messages,
                                const Tokenizer& tokenizer);

bool has_controls(std::string_view text, const Tokenizer& tokenizer);  // special tokens

[[noreturn]] void fail_unproven(std::string_view place);

}  // namespace dex
