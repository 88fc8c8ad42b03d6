// Answers that a model gave to the questions of conversations: the rows of a batch job, found by
// what was asked.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/mapped_file.h"
#include "common/text/chat_template.h"

namespace dex {

struct Answer {
  std::string text;
  std::string reasoning;  // told apart from the text
  bool cut = false;       // by the token limit: the model had not ended it
};

// The name of what messages ask, and the custom_id of its job: equal messages have equal names in
// any record and file.
std::string question_id(std::span<const Message> messages);

// Thread-safe to read.
class Answers {
 public:
  struct Row {
    std::size_t number = 0;        // of all rows, from 0
    std::optional<Answer> answer;  // none: an error, no text, or ended by anything but itself
  };

  Answers() = default;
  // Rows of the OpenAI batch form, as dex decode --output leaves them, blank lines between them.
  // Error(usage) when a file is missing, Error(io) naming file and line for what is no JSON object,
  // has no custom_id, or answers the same question again. A row that holds no whole text is no
  // answer: an error, a null, a tool call, or a finish_reason but "stop" and "length".
  explicit Answers(std::span<const std::filesystem::path> files);

  std::size_t size() const { return places_.size(); }
  std::optional<Row> find(const std::string& question) const;
  std::string place(std::size_t row) const;  // "FILE line N"

 private:
  struct Place {
    std::size_t file, line;
    std::string_view text;
  };
  void read(std::size_t file);

  std::vector<std::filesystem::path> paths_;
  std::vector<MappedFile> files_;
  std::vector<Place> places_;
  std::unordered_map<std::string, std::size_t> rows_;
};

// Which rows a whole file of conversations has looked at. Answers that nobody asked for belong to
// other data.
class UsedRows {
 public:
  explicit UsedRows(const Answers& answers) : answers_(answers), used_(answers.size()) {}
  void note(std::span<const std::size_t> rows);
  void require_all(const std::filesystem::path& data) const;  // Error(usage) naming the first

 private:
  const Answers& answers_;
  std::vector<bool> used_;
};

// A conversation whose own answers are replaced, one after the other: what was asked before a
// question, with the new answers to it, is part of the question.
struct Dialogue {
  enum class End { all_answered, cut, no_row, no_answer };

  // ends with an answer; with the open question when `end` is no_row
  std::vector<Message> messages;
  End end = End::all_answered;
  int answered = 0;
  std::vector<std::size_t> rows;  // that were looked at
};
Dialogue replay(std::span<const Message> messages, const Answers& answers);

}  // namespace dex
