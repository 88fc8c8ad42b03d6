// The published chat formats, as runs of text and special tokens that no tokenizer has seen yet.
// What stands between two special tokens is one text, whoever wrote it.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/chat_template.h"

namespace dex {

struct Segment {
  enum class Kind {
    text,
    answer,
    control,  // one id
    tag,      // of an answer's thoughts: one id where the tokenizer has it, else text of the answer
    end       // the control that ends an answer
  };
  Kind kind;
  std::string text;
  bool target = true;  // false: an answer or an end that is context only
};

std::vector<std::string> chat_format_names();
bool chat_format_shows_reasoning(std::string_view name);

// Checks roles and UTF-8 (Error(usage)). `name` is one of the names above.
std::vector<Segment> chat_segments(std::string_view name, std::span<const Message> messages,
                                   bool open_answer);

}  // namespace dex
