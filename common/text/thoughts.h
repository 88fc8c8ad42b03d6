// Reasoning that stands in an answer's content, as models write it.
#pragma once
#include <optional>
#include <string_view>

namespace dex {

inline constexpr std::string_view kThinkOpen = "<think>", kThinkClose = "</think>";

struct Thoughts {  // views of the content around the two tags
  std::string_view before, inside, after;
};

// Only an answer that begins with <think> has thoughts: elsewhere the string is text that was
// typed.
std::optional<Thoughts> thoughts_of(std::string_view content);

}  // namespace dex
