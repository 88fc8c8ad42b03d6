// Conversations to token ids, one rendering for training data and for prompts. Only the template
// makes special ids; message content never does.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "common/base/token.h"
#include "common/text/tokenizer.h"

namespace dex {

class JinjaTemplate;
struct TemplateFile;

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
  std::string reasoning = {};  // an answer's, where it is told apart from the content
  bool target = true;          // false: an answer that is context only
};

struct RenderedChat {
  std::vector<Token> tokens;
  // 1 where the token is a target: answers and the token that ends them
  std::vector<std::uint8_t> supervised;
};

// One conversation that this template cannot render; others it can.
class ConversationRefused : public Error {
 public:
  enum class Reason {
    by_template,  // the template raised an error; the message holds its words
    unproven      // where the messages stand in the rendering could not be shown
  };
  ConversationRefused(Reason reason, const std::string& message)
      : Error(ExitCode::usage, message), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

struct TemplateOptions {
  std::string python;  // that has jinja2; "": DEX_PYTHON, then .venv/bin/python, then python3
  std::string kwargs;  // a JSON object, what the template sees beside the messages; "": nothing
};

// Either a built-in, or a template of Jinja's that Python renders in a process of its own, as
// transformers does. Thread-safe; copies share the process.
class ChatTemplate {
 public:
  // llama2 llama3 llama3.1 chatml qwen3 qwen3-thinking smollm2 vicuna
  static std::vector<std::string> names();
  static ChatTemplate named(std::string_view name);  // Error(usage) lists the names
  // From the file that transformers takes: chat_template.jinja, else tokenizer_config.json. A
  // built-in only where the template's text is one of those it was compared with, and there are no
  // kwargs. Error(usage) when there is no template, or no Python to render it.
  static ChatTemplate of_model(const std::filesystem::path& model_dir,
                               const TemplateOptions& options = {});
  // `choice` is what --template says: a name, a file of Jinja's, or "" for the model's own.
  static ChatTemplate chosen(const std::string& choice, const std::filesystem::path& model_dir,
                             const TemplateOptions& options = {});

  // `open_answer` ends the tokens where the assistant's next answer begins. Built-ins want roles
  // that alternate user/assistant after an optional leading system message; otherwise Error(usage).
  // ConversationRefused costs this conversation only. Error(temporary) when the process that
  // renders has died or does not answer.
  RenderedChat render(std::span<const Message> messages, const Tokenizer& tokenizer,
                      bool open_answer) const;

  // The same up to where the last message ends, which must be the assistant's: a prompt that has
  // the model go on with it.
  RenderedChat render_unfinished(std::span<const Message> messages,
                                 const Tokenizer& tokenizer) const;

  // The same template with these kwargs (a JSON object) over its own. Error(usage) for a built-in
  // that has no text of Jinja's to give them to.
  ChatTemplate with_kwargs(const std::string& kwargs) const;

  bool is_built_in() const { return jinja_ == nullptr; }
  const std::string& name() const { return name_; }  // a built-in's, or jinja-DIGEST
  std::string digest() const;                        // changes when the rendering does
  // Whether the last answer's `reasoning` has a place in the text. Where it has none it is left
  // out: the caller's to refuse.
  bool shows_reasoning() const;

 private:
  struct Source;  // the template's text, what it sees, and where it came from
  ChatTemplate(std::string name, std::shared_ptr<const Source> source)
      : name_(std::move(name)), source_(std::move(source)) {}
  static ChatTemplate of_file(TemplateFile file, const std::filesystem::path& model_dir,
                              const TemplateOptions& options);
  static ChatTemplate rendered_by_python(std::shared_ptr<const Source> source,
                                         nlohmann::json kwargs);

  std::string name_;
  std::shared_ptr<const Source> source_;        // null: only a name was given
  std::shared_ptr<const JinjaTemplate> jinja_;  // null: a built-in
};

}  // namespace dex
