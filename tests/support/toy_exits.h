// A model without tensors: what each exit answers after a prefix is a pure function of the prefix,
// with deeper exits agreeing with the final one more often. Small vocabularies make repeats and
// near misses common.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/base/token.h"
#include "common/explore/exit_answer.h"

namespace dex::test {

class ToyExits {
 public:
  ToyExits(int num_stages, int vocab, std::uint64_t seed)
      : num_stages_(num_stages), vocab_(vocab), seed_(seed) {}

  // All tokens ranked by exit `k` after `prefix`.
  std::vector<Token> ranked(const std::vector<Token>& prefix, int k) const {
    std::uint64_t state = seed_;
    const auto seen = std::min<std::size_t>(std::size_t(sees), prefix.size());
    for (Token t : std::vector<Token>(prefix.end() - std::ptrdiff_t(seen), prefix.end()))
      state = mix(state ^ std::uint64_t(t + 1));
    std::vector<Token> order = shuffled(mix(state));  // the final exit's
    if (k + 1 == num_stages_) return order;
    const std::uint64_t own = mix(state ^ (0x9e37u + std::uint64_t(k)));
    if (own % std::uint64_t(num_stages_) <= std::uint64_t(k)) return order;
    return shuffled(own);
  }

  // Without numbers after a prefix that holds `broken`, from some exit on.
  ExitAnswer answer(const std::vector<Token>& prefix, int k, int width,
                    const std::vector<Token>& asked) const {
    if (std::find(prefix.begin(), prefix.end(), broken) != prefix.end() && k >= breaks_at)
      return {.numbers = false};
    const auto order = ranked(prefix, k);
    ExitAnswer a;
    a.tokens.assign(order.begin(), order.begin() + std::min(width, vocab_));
    const auto p = [&](Token t) {
      const auto rank = std::find(order.begin(), order.end(), t) - order.begin();
      return std::ldexp(0.5f, -int(rank));
    };
    for (Token t : a.tokens) a.probabilities.push_back(p(t));
    for (Token t : asked) a.asked.push_back(p(t));
    a.reference = a.tokens.front();
    return a;
  }

  int sees = 1 << 30;  // last tokens of a prefix that an answer depends on: few make text repeat
  Token broken = -1;
  int breaks_at = 0;

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  std::vector<Token> shuffled(std::uint64_t state) const {
    std::vector<Token> order(vocab_);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[(state = mix(state)) % i]);
    return order;
  }

  int num_stages_, vocab_;
  std::uint64_t seed_;
};

}  // namespace dex::test
