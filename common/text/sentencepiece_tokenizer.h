// SentencePiece models (tokenizer.model of Llama 2, CodeLlama, TinyLlama) through the SentencePiece
// library.
#pragma once
#include <filesystem>
#include <memory>

#include "common/text/tokenizer.h"

namespace dex {

// Ids past the model's own pieces come from added_tokens_decoder in the tokenizer_config.json
// beside it. Error(io) when the file is no SentencePiece model, with a hint at what it is.
std::unique_ptr<Tokenizer> read_sentencepiece_tokenizer(const std::filesystem::path& path);

}  // namespace dex
