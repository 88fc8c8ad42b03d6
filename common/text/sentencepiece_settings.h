// The few fields of a SentencePiece model file that its library reads but does not tell.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace dex {

struct SentencePieceSettings {
  bool dummy_prefix = true;   // a space is put before a whole text
  bool strips_spaces = true;  // leading, trailing and repeated spaces are removed
  // BPE with byte fallback that leaves characters as they are and spaces before words
  bool words_are_apart = false;
};

// `bytes` are a model file that the library has accepted.
SentencePieceSettings read_sentencepiece_settings(std::string_view bytes);

// Tags that the model file has as user-defined pieces, which the library would find in any text:
// makes control pieces of them, which it does not, and returns their ids. Other user-defined pieces
// stay as they are. Bytes that are no model stay as they are.
std::vector<int> hide_tags(std::string& bytes);

}  // namespace dex
