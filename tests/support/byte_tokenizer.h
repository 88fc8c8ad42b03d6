// The smallest tokenizer.json there is: an id for every byte, no merges, three special tokens
// behind them.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/base/file.h"
#include "common/text/byte_alphabet.h"

namespace dex::test {

constexpr int kByteVocabulary = 259;

inline void write_byte_tokenizer(const std::filesystem::path& dir) {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[to_byte_alphabet(std::string(1, char(byte)))] = byte;
  nlohmann::json added = nlohmann::json::array();
  int id = 256;
  for (const char* text : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    vocab[text] = id;
    added.push_back({{"id", id++},
                     {"content", text},
                     {"special", true},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  }
  const nlohmann::json file = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"},
        {"add_prefix_space", false},
        {"trim_offsets", true},
        {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  write_file(dir / "tokenizer.json", file.dump());
}

}  // namespace dex::test
