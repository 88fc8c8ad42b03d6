// Small tokenizers made on the spot: byte-level BPE files with chosen merges.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/text/byte_alphabet.h"

namespace dex::test {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// In rank order; the pairs are raw bytes.
inline Pairs tiny_merges() {
  return {{" ", "t"}, {"h", "e"},   {" t", "he"}, {"i", "n"},   {"in", "g"},
          {"l", "l"}, {"he", "ll"}, {"a", "a"},   {"aa", "aa"}, {"\n", "\n"},
          {" ", " "}, {"  ", "  "}, {"1", "2"},   {"o", "w"},   {"hell", "ow"}};
}

struct TinyBpe {
  Pairs merges = tiny_merges();
  // ids 0, 1, 2, ...
  std::vector<std::string> controls{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::string split = "qwen";  // "qwen", "llama3", "smollm2"
  bool merges_as_pairs = false, nfc = false, ignore_merges = false;
};

// Controls first, then the 256 bytes, then the merges' results, as trained files have them.
inline nlohmann::json tiny_bpe_json(const TinyBpe& tiny = {}) {
  using nlohmann::json;
  json vocabulary = json::object(), added = json::array(), merges = json::array();
  int next = 0;
  for (const std::string& text : tiny.controls) {
    added.push_back({{"id", next},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", text != "<think>" && text != "</think>"}});
    vocabulary[text] = next++;
  }
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[to_byte_alphabet(std::string(1, char(byte)))] = next++;
  for (const auto& [left, right] : tiny.merges) {
    const std::string a = to_byte_alphabet(left), b = to_byte_alphabet(right);
    if (!vocabulary.contains(a + b)) vocabulary[a + b] = next++;
    merges.push_back(tiny.merges_as_pairs ? json{a, b} : json(a + " " + b));
  }
  const std::string digits = tiny.split == "llama3" ? R"(\p{N}{1,3})" : R"(\p{N})";
  json rules = json::array();
  if (tiny.split == "smollm2")
    rules.push_back({{"type", "Digits"}, {"individual_digits", true}});
  else
    rules.push_back(
        {{"type", "Split"},
         {"behavior", "Isolated"},
         {"invert", false},
         {"pattern",
          {{"Regex", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" + digits +
                         R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}}});
  rules.push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", tiny.split == "smollm2"}});
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", tiny.nfc ? json{{"type", "NFC"}} : json()},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", rules}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"byte_fallback", false},
            {"ignore_merges", tiny.ignore_merges},
            {"vocab", vocabulary},
            {"merges", merges}}}};
}

}  // namespace dex::test
