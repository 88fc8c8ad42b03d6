#include "common/readiness.h"

#include <algorithm>

namespace dex {

Readiness readiness(std::span<const std::vector<Token>> ranked) {
  const int last = static_cast<int>(ranked.size()) - 1;
  const Token reference = ranked[static_cast<std::size_t>(last)].front();
  Readiness result{last, last, last};
  for (int k = last - 1; k >= 0; --k)
    if (ranked[static_cast<std::size_t>(k)].front() == reference) result.first = k;
  while (result.stable > 0 && ranked[static_cast<std::size_t>(result.stable - 1)].front() == reference) --result.stable;

  std::vector<Token> proposed;  // DECS: a deeper exit proposes its best token that no shallower one proposed
  for (int k = 0; k < last; ++k) {
    for (Token token : ranked[static_cast<std::size_t>(k)]) {
      if (std::find(proposed.begin(), proposed.end(), token) != proposed.end()) continue;
      proposed.push_back(token);
      break;
    }
    if (!proposed.empty() && proposed.back() == reference) {
      result.decs_branch = k;
      break;
    }
  }
  return result;
}

void RoundCount::add(const Readiness& token, bool last_of_text) {
  ++tokens_;
  texts_ += last_of_text;
  rounds_ += last_of_text ? num_stages_ : token.decs_branch + 1;
}

}  // namespace dex
