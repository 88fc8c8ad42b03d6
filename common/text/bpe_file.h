// What a tokenizer.json with a byte-level BPE model says, checked.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/token.h"
#include "common/text/added_token_files.h"
#include "common/text/added_tokens.h"
#include "common/text/bpe_model.h"
#include "common/text/pre_tokenizer.h"

namespace dex {

struct Piece {
  std::string stored;    // as the file has it, in the byte alphabet
  std::string bytes;     // what it decodes to
  bool added = false;    // found in text before anything is merged
  bool control = false;  // never from plain text: only a template or a raw prompt makes it
  bool special = false;  // never part of decoded text
};

struct BpeFile {
  std::vector<Piece> pieces;       // by id
  std::vector<std::string> plain;  // by id: bytes of words that merging can give; else empty
  std::vector<Merge> merges;
  std::vector<SplitRule> rules;
  AddedTokens added;
  bool whole_words_first = false, nfc = false;
  std::optional<Token> begin;  // from the post-processor
};

// None when the file is sound but its model is not byte-level BPE; `other` then says what it is.
// Error(io) when it is no JSON, Error(usage) when it has a rule that is not known here. `place` is
// its path, for messages; `beside` is what the files beside it add.
std::optional<BpeFile> read_bpe_file(const std::string& bytes, const std::string& place,
                                     std::string& other, const AddedTokenFiles& beside);

}  // namespace dex
