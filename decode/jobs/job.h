// Lines of a batch job: the OpenAI batch form {"custom_id", "method", "url", "body": {...}} or the
// body's fields flat.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/text/chat_template.h"

namespace dex {

struct Job {
  std::string custom_id;
  std::optional<std::string> prompt;  // text to be continued, or
  std::vector<Message> messages;      // a conversation to be answered
  std::optional<int> max_tokens;
};

struct BadJob {
  std::string custom_id;  // when the line names one
  std::string reason;
};

struct JobLine {
  int number = 0;  // in the file, from 1
  std::variant<Job, BadJob> content;
};

// Only LF ends a line; a byte-order mark and one CR before the LF are dropped; blank lines are
// skipped. Of a repeated key the last one counts. Never throws for what a line holds.
std::vector<JobLine> parse_jobs(std::string_view file);

// The first `limit` jobs of a file of prompts (0: all), for measurements: a bad line or none at all
// is Error(usage).
std::vector<JobLine> read_jobs(const std::filesystem::path& path, int limit);

}  // namespace dex
