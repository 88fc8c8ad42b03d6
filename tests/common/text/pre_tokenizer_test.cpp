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

TEST_CASE("general categories are those of the reference") {
  const auto only = [](const char* pattern, const std::string& text) {
    return words_of({{SplitRule::Kind::regex, pattern}}, "x" + text + "x") == Words{"x", text, "x"};
  };
  CHECK(only(R"(\p{Lu})", "\xEA\x9F\x9C"));      // U+A7DC, of Unicode 16
  CHECK(only(R"(\p{Mc})", "\xF0\x91\x9C\x9E"));  // U+1171E, Mn before Unicode 16
  CHECK_FALSE(only(R"(\p{Mn})", "\xF0\x91\x9C\x9E"));
  CHECK(only(R"([\p{S}\p{P}]+)", "\xE2\x9F\x90\xC2\xA7"));
  CHECK_FALSE(only(R"(\p{Sc})", "\xE2\x83\x81"));  // U+20C1, of Unicode 17
}

TEST_CASE("lines end and begin where the reference's engine says") {
  const std::vector<SplitRule> rules{{SplitRule::Kind::regex, R"(\s+$)"}};
  CHECK(words_of(rules, "a  \nb ") == Words{"a", "  ", "\nb", " "});
  CHECK(words_of(rules, "a \r\n") == Words{"a", " \r\n"});
  CHECK(words_of({{SplitRule::Kind::regex, R"(^\u0062|\x63|\v)"}}, "ab\nbc\vd") ==
        Words{"ab\n", "b", "c", "\v", "d"});
}

TEST_CASE("what two engines of patterns read differently is refused with its place") {
  for (const auto& [pattern, part] :
       std::vector<std::pair<std::string, std::string>>{{R"(a\w+)", R"(\w at byte 1)"},
                                                        {R"([a[b]])", "[ at byte 2"},
                                                        {R"([[:alpha:]])", "[ at byte 1"},
                                                        {R"([\p{L}&&[^a]])", "&& at byte 6"},
                                                        {R"(\p{Han}+)", R"(\p{Han} at byte 0)"},
                                                        {R"(\pL)", R"(\p at byte 0)"},
                                                        {R"(a{1,3}+)", "}+ at byte 5"},
                                                        {R"(a{,3})", "{, at byte 1"},
                                                        {R"((?i:\p{L}))", R"(\p{L} at byte 4)"},
                                                        {R"((?<n>a))", "(?<n at byte 0"},
                                                        {R"((*UTF)a)", "(*UT at byte 0"},
                                                        {R"(\h)", R"(\h at byte 0)"},
                                                        {R"((a)\1)", R"(\1 at byte 3)"},
                                                        {R"(\xff)", R"(\xff at byte 0)"},
                                                        {R"([\P{L}])", R"(\P{L} at byte 1)"},
                                                        {R"([]a])", "] at byte 1"}})
    CHECK_THROWS_WITH(words_of({{SplitRule::Kind::regex, pattern}}, ""),
                      Catch::Contains("here") && Catch::Contains(part));
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
