// Byte-level BPE as tokenizer.json describes it (Llama 3, Qwen3, SmolLM2). Every rule is read from
// the file; one that is not known here is an Error(usage) that names what was seen and what is
// supported.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "common/text/added_token_files.h"
#include "common/text/tokenizer.h"

namespace dex {

// `bytes` are the file's, `place` its path, `beside` what the files beside it add. Null when the
// file is sound but its model is not byte-level BPE; `other` then says what it is.
std::unique_ptr<Tokenizer> read_bpe_tokenizer(const std::string& bytes, const std::string& place,
                                              std::string& other,
                                              const AddedTokenFiles& beside = {});

}  // namespace dex
