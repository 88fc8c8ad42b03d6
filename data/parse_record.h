// One record's text to a conversation.
#pragma once
#include "data/conversation.h"
#include "data/sharegpt_reader.h"

namespace dex {

// Never an error: text that is no JSON, or JSON of another form, comes back with the reason to skip
// it, what was wrong, and the id as far as it could be read.
//
// A record is an object with a list of turns ("conversations", "conversation", "messages" or
// "items"), each with a role ("from", "role") and a text ("value", "content": a text or text
// parts). Beside the turns may stand "system" or "system_prompt", in an answer "reasoning_content",
// "reasoning" or "thinking". "weight", "train" and "loss_mask" of a turn or of the whole record,
// and "loss" of a turn, are 0 or false where it is context only; 1, true or null say nothing. A
// null is no field. A key that stands twice in one object makes the record malformed.
Conversation parse_record(const RawRecord& record);

}  // namespace dex
