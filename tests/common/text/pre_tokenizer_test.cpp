#include "common/text/pre_tokenizer.h"

#include <catch2/catch.hpp>

#include "common/base/error.h"

using namespace dex;

namespace {

using Words = std::vector<std::string>;

const char* const kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Words words_of(const std::vector<SplitRule>& rules, const std::string& text) {
  std::vector<std::string_view> views;
  PreTokenizer(rules, "here").split(text, views);
  return {views.begin(), views.end()};
}

Words qwen(const std::string& text) { return words_of({{SplitRule::Kind::regex, kQwen}}, text); }
Words smollm2(const std::string& text) {
  return words_of({{SplitRule::Kind::each_digit}, {SplitRule::Kind::regex, kByteLevelPattern}},
                  text);
}

}  // namespace

TEST_CASE("Qwen's pattern cuts words, digits, punctuation and spaces") {
  CHECK(qwen("Hello world's 42  cats!\n\nend") ==
        Words{"Hello", " world", "'s", " ", "4", "2", " ", " cats", "!\n\n", "end"});
  CHECK(qwen("").empty());
  CHECK(qwen("I'LL \xE4\xB8\xAD\xE6\x96\x87") == Words{"I", "'LL", " \xE4\xB8\xAD\xE6\x96\x87"});
}

TEST_CASE("digits are cut one by one before the byte-level pattern sees the pieces") {
  // the run of spaces ends its piece
  CHECK(smollm2("a  12 b") == Words{"a", "  ", "1", "2", " b"});
  CHECK(smollm2("x\xC2\xBD\xD9\xA3y") == Words{"x", "\xC2\xBD", "\xD9\xA3", "y"});
  CHECK(words_of({{SplitRule::Kind::digits}}, "ab123c45") == Words{"ab", "123", "c", "45"});
}

TEST_CASE("white space and letters are those of the reference, not of the installed PCRE2") {
  CHECK(smollm2("a\xE1\xA0\x8E!") == Words{"a", "\xE1\xA0\x8E!"});  // U+180E is no space
  CHECK(qwen("a \xC2\x85"
             "b") == Words{"a", " ",
                           "\xC2\x85"
                           "b"});  // U+0085 is one
  // U+31350, a letter since Unicode 15
  CHECK(qwen("!\xF0\xB1\x8D\x90!") == Words{"!\xF0\xB1\x8D\x90", "!"});
  // U+11DE0, a digit since Unicode 17
  CHECK(smollm2("x\xF0\x91\xB7\xA0y") == Words{"x", "\xF0\x91\xB7\xA0", "y"});
}

TEST_CASE("words put together are the text, in one piece where no rule matches") {
  const std::string text = "no digits at all";
  CHECK(words_of({{SplitRule::Kind::regex, R"(\p{N}+)"}}, text) == Words{text});
  CHECK(words_of({{SplitRule::Kind::regex, R"(\p{N}*)"}}, "a1b") ==
        Words{"a", "1", "b"});  // empty matches make no words
}

TEST_CASE("a pattern that cannot be used is refused with its text") {
  CHECK_THROWS_WITH(words_of({{SplitRule::Kind::regex, "(a"}}, ""),
                    Catch::Contains("here") && Catch::Contains("(a"));
  CHECK_THROWS_AS(words_of({{SplitRule::Kind::regex, R"([\S])"}}, ""), Error);
}
