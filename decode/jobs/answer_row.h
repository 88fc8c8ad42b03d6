// Lines of a file of answers, as the OpenAI batch API gives them.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "decode/jobs/job.h"
#include "decode/text_run.h"

namespace dex {

// What an answer is made of beside its job and its text.
struct AnswerFrame {
  std::string model;         // its name
  std::int64_t created = 0;  // Unix time in seconds, where a job names none
};

// `text` is result.text_ids() as text. A function of what is passed.
std::string answer_row(const JobLine& line, const AnswerFrame& frame, std::size_t prompt_tokens,
                       const DecodeResult& result, const std::string& text);
std::string error_row(const JobLine& line, const std::string& reason);

std::string line_of(const nlohmann::json& json);  // what is no UTF-8 becomes U+FFFD

}  // namespace dex
