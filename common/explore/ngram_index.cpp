#include "common/explore/ngram_index.h"

#include <algorithm>

namespace dex {

// An n-gram is found by the position behind it, once there is a token at that position.
void NgramIndex::append(Token token) {
  const int position = text_.size();
  previous_.resize(kLongest);
  for (int n = 1; n <= kLongest; ++n) {
    auto& previous = previous_[n - 1];
    previous.push_back(-1);
    if (n > position) continue;
    auto [latest, added] =
        latest_.try_emplace(key_of(std::span(text_).last(std::size_t(n))), position);
    if (!added) previous.back() = std::exchange(latest->second, position);
  }
  text_.push_back(token);
}

std::vector<NgramIndex::Match> NgramIndex::matches(std::span<const Token> path, int most) const {
  const auto tail = ending(path);
  std::vector<Match> found;
  for (int n = tail.size(); n >= 1; --n) {
    const auto wanted = std::span(tail).last(std::size_t(n));
    const auto latest = latest_.find(key_of(wanted));
    for (int at = latest == latest_.end() ? -1 : latest->second; at >= 0;
         at = previous_[n - 1][at]) {
      if (int(found.size()) == most) return found;
      // keys may collide, and a longer match is one of this length, too
      const bool alike = std::equal(wanted.begin(), wanted.end(), text_.begin() + at - n);
      const bool fresh =
          std::none_of(found.begin(), found.end(), [&](const Match& m) { return m.next == at; });
      if (alike && fresh) found.push_back({at, n});
    }
  }
  return found;
}

// FNV-1a over the tokens, their number first.
NgramIndex::Key NgramIndex::key_of(std::span<const Token> tokens) {
  constexpr Key kPrime = 0x100000001b3;
  Key key = (0xcbf29ce484222325 ^ tokens.size()) * kPrime;
  for (const Token token : tokens) key = (key ^ std::uint32_t(token)) * kPrime;
  return key;
}

std::vector<Token> NgramIndex::ending(std::span<const Token> path) const {
  const int from_path = std::min<int>(kLongest, path.size());
  const int from_text = std::min<int>(kLongest - from_path, text_.size());
  std::vector<Token> tail(text_.end() - from_text, text_.end());
  tail.insert(tail.end(), path.end() - from_path, path.end());
  return tail;
}

}  // namespace dex
