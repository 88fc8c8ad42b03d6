// Lines of a batch job: the OpenAI batch form {"custom_id", "method", "url", "body": {...}} or the
// body's fields flat. No torch.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/token.h"
#include "common/text/chat_template.h"

namespace dex {

struct Job {
  std::string custom_id;                // empty: none
  std::optional<std::int64_t> created;  // Unix time in seconds
  // One of these:
  std::optional<std::string> prompt;             // text to be continued
  std::optional<std::vector<Token>> prompt_ids;  // the same as ids, nothing before them
  std::vector<Message> messages;                 // a conversation
  // Of a conversation:
  std::string template_kwargs;     // a JSON object that the template sees; "": nothing
  bool begins_answer = true;       // the template's header of an answer ends the prompt
  bool goes_on_with_last = false;  // the last message ends it: an answer, without its end
  std::optional<int> max_tokens;
};

struct BadJob {
  std::string custom_id;  // when the line names one
  std::string reason;
};

struct JobLine {
  int number = 0;      // in the file, from 1
  std::string digest;  // of the line's bytes
  std::variant<Job, BadJob> content;
};

std::string custom_id_of(const JobLine& line);  // empty: none

// Only LF ends a line; a byte-order mark and one CR before the LF are dropped; blank lines are
// skipped. Of a repeated key the last one counts, of a repeated custom_id the first line. Never
// throws for what a line holds.
std::vector<JobLine> parse_jobs(std::string_view file);

// The first `limit` jobs of a file of prompts (0: all), for measurements: a bad line or none at all
// is Error(usage).
std::vector<JobLine> read_jobs(const std::filesystem::path& path, int limit);

}  // namespace dex
