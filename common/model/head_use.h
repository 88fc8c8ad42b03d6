// Whether explorers share the head: each reads its ids of it for the rows of all exits, and a round
// reads the head once. Else each reads all of it for the rows of its own exit.
#pragma once
#include <string>

#include "common/model/config.h"

namespace dex {

enum class HeadUse { automatic, whole, shared };

HeadUse parse_head_use(const std::string& name);  // "auto", "whole", "shared"; else Error(usage)

// Automatic: where the head has more weights than a quarter of an explorer's layers. Never with one
// explorer. `vocab`: ids that are read. A function of the model alone, so explorers agree.
bool shares_head(HeadUse use, const ModelConfig& config, int vocab, int explorers);

}  // namespace dex
