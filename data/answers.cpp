#include "data/answers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "data/conversation.h"
#include "data/message_fields.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// What a cut leaves of a character.
void drop_broken_end(std::string& text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  while (text.ends_with(kReplacement)) text.resize(text.size() - kReplacement.size());
}

// What stands there, null where the way to it ends.
json at(const json& value, std::initializer_list<const char*> path) {
  const json* found = &value;
  for (const char* name : path) {
    if (!found->is_object() || !found->contains(name)) return nullptr;
    found = &(*found)[name];
  }
  return *found;
}

std::optional<Answer> answer_of(const json& row) {
  const json choices = at(row, {"response", "body", "choices"});
  if (!at(row, {"error"}).is_null() || at(row, {"response", "status_code"}) != 200 ||
      !choices.is_array() || choices.empty())
    return std::nullopt;
  const json message = at(choices[0], {"message"}), end = at(choices[0], {"finish_reason"});
  if (!message.is_object() || other_content_field(message)) return std::nullopt;
  const auto text = text_of(at(message, {"content"})), reasoning = reasoning_of(message);
  if (!text || !reasoning || (end != "stop" && end != "length")) return std::nullopt;
  Answer answer{*text, *reasoning, end == "length"};
  if (answer.cut) drop_broken_end(answer.text);
  if (is_blank(answer.text)) return std::nullopt;
  return answer;
}

}  // namespace

std::string question_id(std::span<const Message> messages) {
  json asked = json::array();
  for (const Message& message : messages) asked.push_back({message.role, message.content});
  return "question-" + sha256_of(asked.dump()).substr(0, 32);
}

Answers::Answers(std::span<const fs::path> files) : paths_(files.begin(), files.end()) {
  for (const fs::path& path : paths_) files_.emplace_back(path);
  for (std::size_t file = 0; file < files_.size(); ++file) read(file);
}

void Answers::read(std::size_t file) {
  std::string_view rest = files_[file].text();
  if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
  for (std::size_t line = 1; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const Place place{file, line, rest.substr(0, end)};
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (is_blank(place.text)) continue;
    places_.push_back(place);
    const std::string name = this->place(places_.size() - 1);
    try {
      const std::string id = json::parse(place.text).at("custom_id");
      const auto [before, fresh] = rows_.emplace(id, places_.size() - 1);
      require(fresh, ExitCode::io, "{}: answers {} again, after {}", name, id,
              this->place(before->second));
    } catch (const json::exception& error) {
      fail(ExitCode::io, "{}: no row of answers: {}", name, error.what());
    }
  }
}

std::optional<Answers::Row> Answers::find(const std::string& question) const {
  const auto found = rows_.find(question);
  if (found == rows_.end()) return std::nullopt;
  return Row{found->second, answer_of(json::parse(places_[found->second].text))};
}

std::string Answers::place(std::size_t row) const {
  return fmt::format("{} line {}", paths_[places_[row].file].string(), places_[row].line);
}

void UsedRows::note(std::span<const std::size_t> rows) {
  for (const std::size_t row : rows) used_[row] = true;
}

void UsedRows::require_all(const fs::path& data) const {
  const auto left = std::count(used_.begin(), used_.end(), false);
  if (left == 0) return;
  const auto first = std::size_t(std::find(used_.begin(), used_.end(), false) - used_.begin());
  fail(ExitCode::usage,
       "{} of {} answers are to no question of {}, the first is {}; wanted the file and --limit "
       "that were asked from",
       left, used_.size(), data.string(), answers_.place(first));
}

Dialogue replay(std::span<const Message> messages, const Answers& answers) {
  Dialogue dialogue;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "assistant") continue;
    dialogue.messages.push_back(messages[i]);
    if (messages[i].role != "user") continue;
    const auto row = answers.find(question_id(dialogue.messages));
    if (row) dialogue.rows.push_back(row->number);
    if (!row || !row->answer) {
      if (row) dialogue.messages.pop_back();
      dialogue.end = row ? Dialogue::End::no_answer : Dialogue::End::no_row;
      return dialogue;
    }
    // What the record marks as context only stays so, whoever answers.
    const bool target = i + 1 == messages.size() || messages[i + 1].target;
    dialogue.messages.push_back({"assistant", row->answer->text, row->answer->reasoning, target});
    ++dialogue.answered;
    if (row->answer->cut) {
      dialogue.end = Dialogue::End::cut;
      return dialogue;
    }
  }
  return dialogue;
}

}  // namespace dex
