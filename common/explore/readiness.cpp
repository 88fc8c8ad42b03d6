#include "common/explore/readiness.h"

#include <algorithm>

namespace dex {

Readiness readiness(std::span<const std::vector<Token>> ranked) {
  const int last = int(ranked.size()) - 1;
  const Token reference = ranked[last].front();
  Readiness result{last, last, last};
  for (int k = last - 1; k >= 0; --k)
    if (ranked[k].front() == reference) result.first = k;
  while (result.stable > 0 && ranked[result.stable - 1].front() == reference) --result.stable;

  // DECS: a deeper exit proposes its best token that no shallower one proposed
  std::vector<Token> proposed;
  for (int k = 0; k < last; ++k) {
    for (Token token : ranked[k]) {
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
