// What `dex inspect` prints about a prepared data set.
#pragma once
#include <filesystem>
#include <string>

#include "common/text/tokenizer.h"
#include "data/sample.h"

namespace dex {

// Counts and attributes, and the first training sample as masked text when the tokenizer it was
// made with is still where it was. Verifies every shard.
std::string describe_shards(const std::filesystem::path& dir);

// The text of a sample with its supervised spans in ⟦brackets⟧, special ids by their names.
std::string masked_text(const Sample& sample, const Tokenizer& tokenizer);

}  // namespace dex
