#include "common/text/chat_spans.h"

#include <catch2/catch.hpp>

using namespace dex;

namespace {

using Parts = std::vector<std::string_view>;

// The placed parts, or "none".
std::string placed(std::string_view text, const Frames& frames, const Parts& parts) {
  const auto spans = place_parts(text, frames, parts);
  if (!spans) return "none";
  std::string shown;
  for (const Span& span : *spans)
    shown += "[" + std::string(text.substr(span.begin, span.end - span.begin)) + "]";
  return shown;
}

}  // namespace

TEST_CASE("a rendering is cut at its marks, in their order") {
  const std::string stem = "mark";
  const Frames frames =
      cut_at_marks("a" + mark_of(stem, 1) + "b" + mark_of(stem, 0) + mark_of(stem, 1), stem);
  CHECK(frames.texts == std::vector<std::string>{"a", "b", "", ""});
  CHECK(frames.parts == std::vector<std::size_t>{1, 0, 1});
  // what only looks like one is text
  CHECK(cut_at_marks("mark12 mark mark00000", stem).texts.size() == 1);
}

TEST_CASE("parts are placed where the text around them is the marked rendering's") {
  const Frames frames{{"<", "|", ">"}, {0, 1}};
  CHECK(placed("<one|two>", frames, {"one", "two"}) == "[one][two]");
  CHECK(placed("<one|two>!", frames, {"one", "two"}) == "none");
  CHECK(placed("<one|TWO>", frames, {"one", "two"}) == "none");
  CHECK(placed("(one|two>", frames, {"one", "two"}) == "none");
  CHECK(placed("<|two>", frames, {"", "two"}) == "[][two]");
  // text that holds what stands between parts does not mislead
  CHECK(placed("<a|b|c>", frames, {"a|b", "c"}) == "[a|b][c]");
  CHECK(placed("<a|b|c>", frames, {"a", "b|c"}) == "[a][b|c]");
}

TEST_CASE("a part may be trimmed, of white space or of line feeds, at either end") {
  const Frames frames{{"<", ">"}, {0}};
  const Parts part{"\n  x y \n"};
  CHECK(placed("<\n  x y \n>", frames, part) == "[\n  x y \n]");
  CHECK(placed("<x y>", frames, part) == "[x y]");
  CHECK(placed("<x y \n>", frames, part) == "[x y \n]");
  CHECK(placed("<\n  x y>", frames, part) == "[\n  x y]");
  CHECK(placed("<  x y >", frames, part) == "[  x y ]");
  CHECK(placed("<x  y>", frames, part) == "none");
  CHECK(placed("< x y>", frames, part) == "none");
  CHECK(placed("<\xE3\x80\x80z>", frames, {"\xE3\x80\x80z\xC2\xA0"}) == "[\xE3\x80\x80z]");
  CHECK(placed("<>", frames, {" \n"}) == "[]");
}

TEST_CASE("two ways to place a part are no proof") {
  const Frames frames{{"", "", ""}, {0, 1}};
  CHECK(placed("a b", frames, {"a ", " b"}) == "none");  // whose space is it?
  CHECK(placed("a  b", frames, {"a ", " b"}) == "[a ][ b]");
}

TEST_CASE("blank parts without end do not stall the search") {
  const std::size_t count = 2000;
  Frames frames;
  frames.texts.assign(count + 1, "");
  Parts parts;
  for (std::size_t i = 0; i < count; ++i) {
    frames.parts.push_back(i);
    parts.push_back(" \n ");
  }
  CHECK(placed(std::string(count, ' '), frames, parts) == "none");
}
