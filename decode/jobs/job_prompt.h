// What a job asks the model to go on from.
#pragma once
#include <vector>

#include "decode/jobs/job.h"
#include "decode/session.h"

namespace dex {

// Error(usage) where the session's tokenizer or template has no ids for it.
std::vector<Token> prompt_of(const Job& job, const Session& session, bool parse_special);

}  // namespace dex
