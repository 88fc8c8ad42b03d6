#include "decode/jobs/job_prompt.h"

#include <algorithm>
#include <span>

#include "common/base/error.h"

namespace dex {

namespace {

void require_place_for_reasoning(std::span<const Message> messages, const ChatTemplate& chat) {
  const auto thought = std::find_if(messages.begin(), messages.end(),
                                    [](const Message& m) { return !m.reasoning.empty(); });
  require(
      thought == messages.end() || chat.shows_reasoning(), ExitCode::usage,
      "message {}: \"reasoning_content\" is given, and the chat template {} has no place for it",
      thought - messages.begin() + 1, chat.name());
}

std::vector<Token> rendered(const Job& job, const ChatTemplate& chat, const Tokenizer& tokenizer) {
  require_place_for_reasoning(job.messages, chat);
  if (job.goes_on_with_last) return chat.render_unfinished(job.messages, tokenizer).tokens;
  return chat.render(job.messages, tokenizer, job.begins_answer).tokens;
}

}  // namespace

std::vector<Token> prompt_of(const Job& job, const Session& session, bool parse_special) {
  if (job.prompt_ids) return *job.prompt_ids;
  if (job.prompt) return session.prompt_ids(*job.prompt, parse_special);
  const ChatTemplate& chat = session.chat_template();
  if (job.template_kwargs.empty()) return rendered(job, chat, session.tokenizer());
  return rendered(job, chat.with_kwargs(job.template_kwargs), session.tokenizer());
}

}  // namespace dex
