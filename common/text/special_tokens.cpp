#include "common/text/special_tokens.h"

namespace dex {

void SpecialTokens::add(const std::string& text, Token id) {
  ids_[text] = id;
  sizes_.insert(text.size());
  if (first_bytes_.find(text.front()) == std::string::npos) first_bytes_.push_back(text.front());
}

std::optional<Token> SpecialTokens::id_of(std::string_view text) const {
  const auto found = ids_.find(std::string(text));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text,
                                                        std::size_t from) const {
  for (std::size_t at = text.find_first_of(first_bytes_, from); at < text.size();
       at = text.find_first_of(first_bytes_, at + 1))
    for (const std::size_t size : sizes_)
      if (at + size <= text.size())
        if (const auto id = id_of(text.substr(at, size))) return Match{at, size, *id};
  return std::nullopt;
}

}  // namespace dex
