// Prompt lookup: what followed the same words before is drafted behind a node, to enter in the wave
// of what it follows (prompt + output so far; after Saxena's prompt lookup decoding).
#pragma once
#include <memory>

#include "common/explore/proposer.h"

namespace dex {

// Of one text. Drafts at most `length` tokens one behind the other, at most `rows` in all, the
// likeliest first. How far a match of a length can be believed is counted on the text itself.
std::unique_ptr<Proposer> lookup_proposer(int length, int rows);

}  // namespace dex
