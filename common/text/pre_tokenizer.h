// Cuts text into the words that byte-level BPE merges within: the pre_tokenizer of a
// tokenizer.json.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dex {

struct SplitRule {
  enum class Kind { regex, digits, each_digit };
  Kind kind = Kind::regex;
  std::string pattern = {};  // of a regex: matches and what lies between them become words
};

// GPT-2's pattern, which a ByteLevel pre-tokenizer with use_regex stands for.
extern const char* const kByteLevelPattern;

class PreTokenizer {
 public:
  // `place` names the file in messages. A pattern that does not compile is an Error(usage).
  PreTokenizer(const std::vector<SplitRule>& rules, const std::string& place);
  ~PreTokenizer();

  // Appends the words of valid UTF-8 text; put together they are the text. Each rule works inside
  // the words of the one before it. Thread-safe, linear in the text for the published patterns, no
  // recursion.
  void split(std::string_view text, std::vector<std::string_view>& words) const;

  class Rule;

 private:
  std::vector<std::unique_ptr<Rule>> rules_;
};

}  // namespace dex
