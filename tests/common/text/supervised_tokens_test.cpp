#include "common/text/supervised_tokens.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>

#include "common/base/error.h"

using namespace dex;

namespace {

// A token a byte, '|' is a control. Counts the bytes that it is given. `shouts`: its tokens' texts
// are not the text's, as after a change of normal form.
class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(bool shouts = false) : shouts_(shouts) {}
  std::vector<Token> encode(std::string_view text) const override {
    encoded += text.size();
    return {text.begin(), text.end()};
  }
  std::vector<Token> encode_continuation(std::string_view text) const override {
    return encode(text);
  }
  std::vector<Token> encode_with_special(std::string_view text) const override {
    return encode(text);
  }
  std::string decode(std::span<const Token> ids, bool) const override {
    std::string text;
    for (const Token id : ids) text += shouts_ ? char(std::toupper(int(id))) : char(id);
    decoded += ids.size();
    return text;
  }
  int size() const override { return 256; }
  bool is_special(Token id) const override { return id == '|'; }
  std::optional<Token> special_id(std::string_view text) const override {
    return text == "|" ? std::optional<Token>('|') : std::nullopt;
  }
  std::optional<Token> bos_id() const override { return std::nullopt; }
  std::string text_of_id(Token id) const override { return std::string(1, char(id)); }

  mutable std::size_t encoded = 0, decoded = 0;

 private:
  bool shouts_;
};

// "(a)" is a target with its bytes between the brackets; each '|' is a control.
struct Written {
  std::string text;
  std::vector<Control> controls;
  std::vector<Span> targets;
};
Written written(std::string_view marked) {
  Written made;
  for (const char c : marked) {
    const std::size_t at = made.text.size();
    if (c == '(') {
      made.targets.push_back({at, at});
    } else if (c == ')') {
      made.targets.back().end = at;
    } else {
      if (c == '|') made.controls.push_back({{at, at + 1}, '|'});
      made.text += c;
    }
  }
  return made;
}

std::string marks(const RenderedChat& chat) {
  std::string shown;
  for (const auto mark : chat.supervised) shown += mark ? 'x' : '.';
  return shown;
}

RenderedChat tokens(const Written& made, const ByteTokenizer& tokenizer) {
  return tokenize_marked({made.text, made.controls, made.targets, "here"}, tokenizer);
}

}  // namespace

TEST_CASE("targets are marked byte for byte, by the tokens' texts or by pieces") {
  for (const bool shouts : {false, true}) {
    const ByteTokenizer tokenizer(shouts);
    const auto shown = [&](std::string_view marked) {
      const Written made = written(marked);
      const RenderedChat chat = tokens(made, tokenizer);
      CHECK(chat.tokens == std::vector<Token>(made.text.begin(), made.text.end()));
      return marks(chat);
    };
    CHECK(shown("") == "");
    CHECK(shown("abc") == "...");
    CHECK(shown("(abc)") == "xxx");
    CHECK(shown("a(b)c") == ".x.");
    CHECK(shown("ab(cd)") == "..xx");
    CHECK(shown("a(b)c(d)e") == ".x.x.");
    CHECK(shown("|a(b|)c|") == "..xx..");
    CHECK(shown("|(|)a(b|c)|") == ".x.xxx.");
    CHECK(shown("|a||(|b)|") == "....xx.");
  }
}

// Thousands of turns without a control, and with one at each end: each byte is looked at a few
// times, not once for every turn.
TEST_CASE("the work of marking grows as the text does") {
  for (const bool shouts : {false, true})
    for (const char* turn : {"user: q\nanswer: (word)\n", "|user: q|answer: (word|)\n"}) {
      const ByteTokenizer tokenizer(shouts);
      std::string marked;
      for (int i = 0; i < 20000; ++i) marked += turn;
      const Written made = written(marked);
      const RenderedChat chat = tokens(made, tokenizer);
      CHECK(std::count(chat.supervised.begin(), chat.supervised.end(), 1) ==
            std::ssize(made.targets) * (turn[0] == '|' ? 5 : 4));
      CHECK(tokenizer.encoded <= 3 * made.text.size());
      CHECK(tokenizer.decoded <= made.text.size());
    }
}
