// Tokens that a tokenizer's files add to its vocabulary: strings that stand for one id each, found
// in a text before anything else happens to it, as the reference library (HF tokenizers) does.
#pragma once
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/token.h"

namespace dex {

struct AddedToken {
  std::string text;  // not empty
  Token id = -1;
  bool special = false;                 // never part of decoded text
  bool normalized = false;              // found in normalized text only
  bool single_word = false;             // not beside a letter, mark, digit or "_"
  bool lstrip = false, rstrip = false;  // takes the white space on that side with it
};

// Controls steer a model and must not come from what people type: special tokens, and tags such as
// <think> or [TOOL] that a file adds as ordinary ones. Other added tokens (letters, words, runs of
// spaces) are part of the language, and any text gives them.
bool is_control(const AddedToken& token);
// "<...>" or "[...]", also behind the sign that SentencePiece has for a space.
bool is_tag(std::string_view text);

class AddedTokens {
 public:
  // `as_found`: the text as it stands where it is looked for, normalized where the token is.
  void add(const AddedToken& token, const std::string& as_found);
  void add(const AddedToken& token) { add(token, token.text); }

  std::optional<Token> id_of(std::string_view text) const;
  const AddedToken* find(std::string_view text) const;  // null when no token has this text

  enum class Stage { as_typed, normalized };
  enum class Controls { stay_text, become_ids };

  // Cuts `text` at the tokens of a stage, leftmost and longest first: plain(std::string_view) for
  // what lies between (never empty), token(Token) for them. A control that stays text still keeps
  // other tokens from being found inside it. Time is linear in the text.
  template <typename Plain, typename Id>
  void cut(std::string_view text, Stage stage, Controls controls, Plain plain, Id token) const {
    const Set& set = sets_[int(stage)];
    std::size_t done = 0;
    const bool any = controls == Controls::become_ids ? !set.by_text.empty() : set.ordinary;
    for (std::size_t from = 0; any;) {
      const auto match = next(set, text, from, done, controls);
      if (!match) break;
      if (match->begin > done) plain(text.substr(done, match->begin - done));
      token(match->id);
      done = match->end;
      from = match->found_end;
    }
    if (done < text.size()) plain(text.substr(done));
  }

 private:
  struct TextHash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct Set {
    std::unordered_map<std::string, std::size_t, TextHash, std::equal_to<>> by_text;
    std::array<std::vector<std::size_t>, 256> sizes;  // by first byte, descending
    bool ordinary = false;                            // one of them is no control
  };
  struct Match {
    std::size_t begin, end;  // with the white space that the token takes
    std::size_t found_end;   // of the token itself
    Token id;
  };

  std::optional<Match> next(const Set& set, std::string_view text, std::size_t from,
                            std::size_t done, Controls controls) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, std::size_t, TextHash, std::equal_to<>> by_text_;
  std::array<Set, 2> sets_;
};

}  // namespace dex
