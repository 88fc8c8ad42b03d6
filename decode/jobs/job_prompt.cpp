#include "decode/jobs/job_prompt.h"

namespace dex {

std::vector<Token> prompt_of(const Job& job, const Session& session, bool parse_special) {
  if (job.prompt_ids) return *job.prompt_ids;
  if (job.prompt) return session.prompt_ids(*job.prompt, parse_special);
  return session.chat_ids(job.messages);
}

}  // namespace dex
