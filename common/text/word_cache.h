// Ids of words met before, for tokenizers whose words are dear. Bounded, shared by all threads.
#pragma once
#include <array>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/token.h"

namespace dex {

class WordCache {
 public:
  // Appends tokenize(word), which must depend on the word alone.
  template <typename Tokenize>
  void append(std::string_view word, Tokenize tokenize, std::vector<Token>& ids) {
    if (word.size() > kLongest) return append_all(tokenize(word), ids);
    Shard& shard = shards_[std::hash<std::string_view>()(word) % kShards];
    {
      const std::lock_guard lock(shard.mutex);
      if (const auto found = shard.words.find(word); found != shard.words.end())
        return append_all(found->second, ids);
    }
    std::vector<Token> made = tokenize(word);
    append_all(made, ids);
    const std::lock_guard lock(shard.mutex);
    if (shard.words.size() >= kMostWords) shard.words.clear();
    shard.words.emplace(word, std::move(made));
  }

 private:
  static constexpr std::size_t kLongest = 64, kShards = 64, kMostWords = 2048;

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const {
      return std::hash<std::string_view>()(word);
    }
  };
  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::string, std::vector<Token>, Hash, std::equal_to<>> words;
  };

  static void append_all(const std::vector<Token>& from, std::vector<Token>& ids) {
    ids.insert(ids.end(), from.begin(), from.end());
  }

  std::array<Shard, kShards> shards_;
};

}  // namespace dex
