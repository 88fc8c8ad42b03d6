#include "common/explore/ngram_index.h"

#include <catch2/catch.hpp>
#include <random>

namespace dex {
namespace {

// Every place, compared token by token.
std::vector<std::pair<int, int>> slow_matches(const std::vector<Token>& text,
                                              const std::vector<Token>& path, int most) {
  std::vector<Token> whole = text;
  whole.insert(whole.end(), path.begin(), path.end());
  std::vector<std::pair<int, int>> found;
  for (int at = 1; at < int(text.size()); ++at) {
    int length = 0;
    while (length < NgramIndex::kLongest && length < at && length < int(whole.size()) &&
           text[at - 1 - length] == whole[whole.size() - 1 - length])
      ++length;
    if (length > 0) found.emplace_back(length, at);
  }
  std::sort(found.rbegin(), found.rend());  // longer, then later
  if (int(found.size()) > most) found.resize(most);
  return found;
}

}  // namespace

TEST_CASE("matches are those of a comparison with every place of the text") {
  std::mt19937 draw(3);
  for (const int vocab : {1, 2, 3, 50})
    for (const int size : {1, 2, 9, 60, 200}) {
      NgramIndex index;
      std::vector<Token> text;
      for (int i = 0; i < size; ++i) {
        text.push_back(Token(draw() % vocab));
        index.append(text.back());
        std::vector<Token> path(draw() % 12);
        for (Token& t : path) t = Token(draw() % vocab);
        for (const auto& behind : {std::vector<Token>{}, path})
          for (const int most : {1, 4, 1000}) {
            CAPTURE(vocab, i, most, behind.size());
            std::vector<std::pair<int, int>> got;
            for (const auto& m : index.matches(behind, most)) got.emplace_back(m.length, m.next);
            REQUIRE(got == slow_matches(text, behind, most));
          }
      }
    }
}

TEST_CASE("a text that never repeats, and one without tokens, match nowhere") {
  NgramIndex index;
  CHECK(index.matches({}, 9).empty());
  CHECK(index.matches(std::vector<Token>{1}, 9).empty());
  for (Token t = 0; t < 20; ++t) index.append(t);
  CHECK(index.matches({}, 9).empty());
  CHECK(index.matches(std::vector<Token>{3}, 9).size() == 1);
}

}  // namespace dex
