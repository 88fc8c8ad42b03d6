// Where the parts of a conversation stand in its rendering: found in a second rendering that has
// marks in place of the parts, and proven by the text around them.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dex {

// A rendering with marks, cut at them: frame 0, part, frame 1, part, ... frame n.
struct Frames {
  std::vector<std::string> texts;
  std::vector<std::size_t> parts;  // which one each mark stands for; one fewer than texts
};

// The mark of part `number`; no template's text may hold `stem`.
std::string mark_of(const std::string& stem, std::size_t number);
Frames cut_at_marks(std::string_view rendering, const std::string& stem);

struct Span {
  std::size_t begin, end;
};

// For each mark of `frames`, where its part stands in `rendering`, which must be the frames with
// the parts between them, each whole or without white space (or line feeds) at either end. None
// where it is not that, or where there are two ways to see it.
std::optional<std::vector<Span>> place_parts(std::string_view rendering, const Frames& frames,
                                             const std::vector<std::string_view>& parts);

bool is_blank_text(
    std::string_view text);  // nothing but white space, as Python's str.strip sees it
std::string_view stripped(std::string_view text);

}  // namespace dex
