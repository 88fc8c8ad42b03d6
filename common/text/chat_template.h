// Conversations to token ids, one rendering for training data and for prompts. Only the template
// makes special ids; message content never does.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/token.h"
#include "common/text/tokenizer.h"

namespace dex {

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

class ChatTemplate {
 public:
  // llama2 llama3 chatml qwen3 smollm2 vicuna
  static std::vector<std::string> names();
  static ChatTemplate named(std::string_view name);  // Error(usage) lists the names
  // From tokenizer_config.json or chat_template.jinja of a model; Error(usage) asks for --template
  // when unrecognised.
  static ChatTemplate of_model(const std::filesystem::path& model_dir);

  // `open_answer` ends the tokens where the assistant's next answer begins. Roles must alternate
  // user/assistant after an optional leading system message; otherwise Error(usage).
  RenderedChat render(std::span<const Message> messages, const Tokenizer& tokenizer,
                      bool open_answer) const;

  const std::string& name() const { return name_; }
  std::string digest() const;  // changes when the rendering does

 private:
  explicit ChatTemplate(std::string name) : name_(std::move(name)) {}
  std::string name_;
};

}  // namespace dex
