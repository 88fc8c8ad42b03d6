// The conversation of a job.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "common/text/chat_template.h"

namespace dex {

// Of a field "messages". A message is used whole, or Error(usage) names it, its field and what is
// there.
std::vector<Message> messages_of(const nlohmann::json& list);

}  // namespace dex
