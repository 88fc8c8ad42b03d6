// What is to be asked of a model so that the answers of conversations become its own: one job line
// for the next question of every conversation. Asked turn by turn: the answers so far are part of
// the next question.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "data/prepare.h"

namespace dex {

struct QuestionOptions {
  std::filesystem::path out;  // job lines of the OpenAI batch form
  int turns = 0;              // ask no more questions of a conversation than this; 0: all
  int answer_tokens = 512;    // of an answer at most
};

struct QuestionReport {
  std::map<std::string, std::int64_t> counts;  // "read" = "kept" (a line each) + "skipped.<reason>"
};

// `options.answers` are the answers to earlier questions, `options.out` is not used. A question
// that leaves no room for an answer within `options.max_len` is not asked. The file appears whole,
// and empty when nothing is left to ask.
QuestionReport write_questions(const PrepareOptions& options, const QuestionOptions& questions,
                               const Renderer& renderer);

}  // namespace dex
