#include "data/questions.h"

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "common/base/error.h"
#include "common/base/file.h"
#include "data/answers.h"
#include "data/conversation.h"
#include "data/parse_record.h"
#include "data/record_pipeline.h"

namespace dex {
namespace {

struct Outcome {  // of one record: a pure function of it and the answers
  Skip skip = Skip::none;
  std::string id, line;
  std::vector<std::size_t> answer_rows;
};

std::string job_line(const std::string& id, const std::vector<Message>& messages,
                     std::size_t max_tokens) {
  nlohmann::json asked = nlohmann::json::array();
  for (const Message& message : messages)
    asked.push_back({{"role", message.role}, {"content", message.content}});
  const nlohmann::json job = {
      {"custom_id", id},
      {"method", "POST"},
      {"url", "/v1/chat/completions"},
      {"body", {{"messages", asked}, {"max_tokens", max_tokens}, {"temperature", 0}}}};
  return job.dump() + "\n";
}

class Asker {
 public:
  Asker(const PrepareOptions& options, const QuestionOptions& questions, const Answers& answers,
        const Renderer& renderer)
      : options_(options), questions_(questions), answers_(answers), renderer_(renderer) {}

  Outcome next_question(const RawRecord& record) const {
    const Usable usable = usable_messages(parse_record(record));
    if (usable.skip != Skip::none) return {usable.skip, "", "", {}};
    const Dialogue dialogue = replay(usable.messages, answers_);
    Outcome outcome{Skip::none, "", "", dialogue.rows};
    if (hides_reasoning(renderer_, dialogue.messages)) {
      outcome.skip = Skip::hidden_reasoning;
      return outcome;
    }
    std::size_t room = 0;
    try {
      if (dialogue.end == Dialogue::End::no_row) room = room_after(dialogue);
    } catch (const ConversationRefused& refused) {
      outcome.skip = skip_of(refused);
      return outcome;
    }
    if (dialogue.end == Dialogue::End::no_answer && dialogue.answered == 0)
      outcome.skip = Skip::unanswered;
    else if (room == 0)
      outcome.skip = dialogue.answered == 0 ? Skip::no_target : Skip::nothing_to_ask;
    if (outcome.skip != Skip::none) return outcome;
    outcome.id = question_id(dialogue.messages);
    outcome.line = job_line(outcome.id, dialogue.messages, room);
    return outcome;
  }

 private:
  // Tokens an answer may have.
  std::size_t room_after(const Dialogue& dialogue) const {
    if (questions_.turns > 0 && dialogue.answered >= questions_.turns) return 0;
    const std::size_t used =
        render_sample(dialogue.messages, options_.max_len, renderer_.render).tokens.size();
    return std::min(options_.max_len - used, std::size_t(questions_.answer_tokens));
  }

  const PrepareOptions& options_;
  const QuestionOptions& questions_;
  const Answers& answers_;
  const Renderer& renderer_;
};

}  // namespace

QuestionReport write_questions(const PrepareOptions& options, const QuestionOptions& questions,
                               const Renderer& renderer) {
  require(questions.turns >= 0, ExitCode::usage, "--turns {}, wanted 0 or more", questions.turns);
  require(questions.answer_tokens >= 1, ExitCode::usage, "--answer-tokens {}, wanted at least 1",
          questions.answer_tokens);
  check(options);
  SharegptReader reader(options.data);
  refuse_cut_file(options);
  const Answers answers(options.answers);
  UsedRows used(answers);
  const Asker asker(options, questions, answers, renderer);
  QuestionReport report{{{"read", 0}, {"kept", 0}}};
  for (int i = 1; i < int(Skip::count); ++i)
    report.counts[fmt::format("skipped.{}", name_of(Skip(i)))] = 0;
  std::unordered_set<std::string> asked;
  std::string lines;
  each_record<Outcome>(
      reader, options, [&](const RawRecord& record) { return asker.next_question(record); },
      [&](Outcome outcome) {
        used.note(outcome.answer_rows);
        if (outcome.skip == Skip::none && !asked.insert(outcome.id).second)
          outcome.skip = Skip::duplicate;
        if (outcome.skip == Skip::none) lines += outcome.line;
        ++report.counts["read"];
        ++report.counts[outcome.skip == Skip::none
                            ? "kept"
                            : fmt::format("skipped.{}", name_of(outcome.skip))];
        return fmt::format("{} questions", report.counts["kept"]);
      });
  used.require_all(options.data);
  write_file(questions.out, lines);
  return report;
}

}  // namespace dex
