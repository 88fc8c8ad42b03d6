// What the files beside a tokenizer say of added tokens: tokenizer_config.json (its
// added_tokens_decoder), added_tokens.json, and special_tokens_map.json, which names special ones.
#pragma once
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "common/text/added_tokens.h"

namespace dex {

// Fields of tokenizer_config.json and special_tokens_map.json that give one token a role.
inline constexpr const char* kRoleNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                             "pad_token", "cls_token", "mask_token"};

struct AddedTokenFiles {
  std::vector<AddedToken> tokens;  // each text once
  // texts that have a role (eos_token, pad_token, ...): special wherever they are found
  std::set<std::string, std::less<>> roles;
  bool begins_texts = true;  // add_bos_token is not false
};

// Absent files say nothing. Where two files differ the added_tokens_decoder holds, as in
// transformers, with a warning. Wrong values are an Error(usage) with the file and the token.
AddedTokenFiles read_added_token_files(const std::filesystem::path& model_dir);

// An id as such files write it; `what` says whose, for the message.
Token checked_token_id(std::int64_t id, const std::string& what);

}  // namespace dex
