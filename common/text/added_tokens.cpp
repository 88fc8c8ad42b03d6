#include "common/text/added_tokens.h"

#include <algorithm>

#include "common/text/unicode_tables.h"
#include "common/text/utf8.h"

namespace dex {
namespace {

constexpr std::string_view kSpaceSign = "\xE2\x96\x81";  // U+2581

// Of Unicode, as the reference trims around an added token.
bool has_white_space_property(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

// \w of the reference: letters, marks, decimal digits, numbers and symbols that are like letters,
// connectors and joiners.
bool is_word(char32_t code) {
  using enum Category;
  const auto run = std::upper_bound(kCategoryRuns.begin(), kCategoryRuns.end(), code,
                                    [](char32_t c, const CategoryRun& r) { return c < r.first; });
  const Category category = std::prev(run)->category;
  const bool circled = (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
                       (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
  return category <= Nd || category == Nl || category == Pc || circled || code == 0x200C ||
         code == 0x200D;
}

// The last code point of valid UTF-8, and where it begins.
CodePoint last_code_point(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return first_code_point(text.substr(at));
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool left = begin == 0 || !is_word(last_code_point(text.substr(0, begin)).value);
  const bool right = end == text.size() || !is_word(first_code_point(text.substr(end)).value);
  return left && right;
}

}  // namespace

bool is_tag(std::string_view text) {
  while (text.starts_with(kSpaceSign)) text.remove_prefix(kSpaceSign.size());
  return text.size() > 2 && ((text.starts_with('<') && text.ends_with('>')) ||
                             (text.starts_with('[') && text.ends_with(']')));
}

bool is_control(const AddedToken& token) { return token.special || is_tag(token.text); }

void AddedTokens::add(const AddedToken& token, const std::string& as_found) {
  const std::size_t at = tokens_.size();
  tokens_.push_back(token);
  by_text_[token.text] = at;
  if (as_found.empty()) return;
  Set& set = sets_[int(token.normalized ? Stage::normalized : Stage::as_typed)];
  set.by_text[as_found] = at;
  set.ordinary = set.ordinary || !is_control(token);
  auto& sizes = set.sizes[static_cast<unsigned char>(as_found.front())];
  const auto place =
      std::lower_bound(sizes.begin(), sizes.end(), as_found.size(), std::greater<>());
  if (place == sizes.end() || *place != as_found.size()) sizes.insert(place, as_found.size());
}

const AddedToken* AddedTokens::find(std::string_view text) const {
  const auto found = by_text_.find(text);
  return found == by_text_.end() ? nullptr : &tokens_[found->second];
}

std::optional<Token> AddedTokens::id_of(std::string_view text) const {
  const AddedToken* token = find(text);
  return token ? std::optional(token->id) : std::nullopt;
}

std::optional<AddedTokens::Match> AddedTokens::next(const Set& set, std::string_view text,
                                                    std::size_t from, std::size_t done,
                                                    Controls controls) const {
  for (std::size_t at = from; at < text.size();) {
    std::size_t size = 0;
    const AddedToken* token = nullptr;
    for (const std::size_t next_size : set.sizes[static_cast<unsigned char>(text[at])]) {
      const auto found = at + next_size <= text.size()
                             ? set.by_text.find(text.substr(at, next_size))
                             : set.by_text.end();
      if (found == set.by_text.end()) continue;
      token = &tokens_[found->second];
      size = next_size;
      break;
    }
    if (!token) {
      ++at;
      continue;
    }
    const std::size_t end = at + size;
    const bool stays_text = controls == Controls::stay_text && is_control(*token);
    if (stays_text || (token->single_word && !stands_alone(text, at, end))) {
      at = end;
      continue;
    }
    // White space that the token before took may be a token itself: it is found all the same, but
    // for one that would take white space on its left.
    Match match{at, end, end, token->id};
    if (token->lstrip) match.begin = std::max(match.begin, done);
    if (token->lstrip)
      while (match.begin > done &&
             has_white_space_property(last_code_point(text.substr(0, match.begin)).value))
        match.begin -= last_code_point(text.substr(0, match.begin)).size;
    if (token->rstrip)
      while (match.end < text.size() &&
             has_white_space_property(first_code_point(text.substr(match.end)).value))
        match.end += first_code_point(text.substr(match.end)).size;
    if (match.begin >= match.end) {
      at = end;
      continue;
    }
    return match;
  }
  return std::nullopt;
}

}  // namespace dex
