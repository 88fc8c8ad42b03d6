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

struct Control {  // a special token and where its text stands
  Span span;
  Token id;
};

// A rendering of which all is known but the ids of its text.
struct MarkedText {
  std::string_view text;
  std::vector<Control> controls;  // in order
  std::vector<Span> targets;      // in order, none in another
  std::string_view place;         // of the template, for messages
};

// What lies between two controls is tokenised in one piece, as transformers does. A token is a
// target where it holds a byte of one. ConversationRefused where that cannot be told.
RenderedChat tokenize_marked(const MarkedText& marked, const Tokenizer& tokenizer);

// Special tokens of the frames become controls. Targets are answers with their thoughts, and the
// special token after each. ConversationRefused where an answer has no place of its own.
RenderedChat tokenize_rendering(const PlacedRendering& rendering, std::span<const Message> messages,
                                const Tokenizer& tokenizer);

bool has_controls(std::string_view text, const Tokenizer& tokenizer);  // special tokens

[[noreturn]] void fail_unproven(std::string_view place);

}  // namespace dex
