#include "data/answers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "data/conversation.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What a cut leaves of a character.
void drop_broken_end(std::string& text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  while (text.ends_with(kReplacement)) text.resize(text.size() - kReplacement.size());
}

std::optional<Answer> answer_of(const json& row) {
  if (!row.value("error", json()).is_null()) return std::nullopt;
  const json& response = row.at("response");
  if (response.at("status_code") != 200) return std::nullopt;
  const json& choice = response.at("body").at("choices").at(0);
  Answer answer{choice.at("message").at("content"), choice.at("finish_reason") == "length"};
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
  for (std::size_t line = 1; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const Place place{file, line, rest.substr(0, end)};
    rest.remove_prefix(std::min(end + 1, rest.size()));
    places_.push_back(place);
    const std::string name = this->place(places_.size() - 1);
    try {
      const json row = json::parse(place.text);
      const std::string id = row.at("custom_id");
      answer_of(row);
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
  for (const Message& message : messages) {
    if (message.role == "assistant") continue;
    dialogue.messages.push_back(message);
    if (message.role != "user") continue;
    const auto row = answers.find(question_id(dialogue.messages));
    if (row) dialogue.rows.push_back(row->number);
    if (!row || !row->answer) {
      if (row) dialogue.messages.pop_back();
      dialogue.end = row ? Dialogue::End::no_answer : Dialogue::End::no_row;
      return dialogue;
    }
    dialogue.messages.push_back({"assistant", row->answer->text});
    ++dialogue.answered;
    if (row->answer->cut) {
      dialogue.end = Dialogue::End::cut;
      return dialogue;
    }
  }
  return dialogue;
}

}  // namespace dex
