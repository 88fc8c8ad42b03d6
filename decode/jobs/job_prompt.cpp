#include "decode/jobs/job_prompt.h"

#include <algorithm>

#include "common/base/error.h"

namespace dex {

std::vector<Token> prompt_of(const Job& job, const Session& session, bool parse_special) {
  if (job.prompt_ids) return *job.prompt_ids;
  if (job.prompt) return session.prompt_ids(*job.prompt, parse_special);
  const auto thought = std::find_if(job.messages.begin(), job.messages.end(),
                                    [](const Message& m) { return !m.reasoning.empty(); });
  require(
      thought == job.messages.end() || session.chat_template().shows_reasoning(), ExitCode::usage,
      "message {}: \"reasoning_content\" is given, and the chat template {} has no place for it",
      thought - job.messages.begin() + 1, session.chat_template().name());
  return session.chat_ids(job.messages);
}

}  // namespace dex
