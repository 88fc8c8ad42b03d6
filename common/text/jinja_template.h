// A chat template of Jinja's, rendered by Python, with the place of every message in the text.
#pragma once
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "common/text/chat_spans.h"
#include "common/text/chat_template.h"
#include "common/text/python_pool.h"
#include "common/text/template_file.h"

namespace dex {

class JinjaTemplate {
 public:
  // Starts Python. Error(usage) when none is found that has jinja2, when the text is no template,
  // and when it reads a special token that the model's files do not speak of.
  JinjaTemplate(const TemplateFile& file, const TemplateTokens& tokens, const std::string& python,
                nlohmann::json kwargs);
  // The same template and processes with other kwargs.
  JinjaTemplate(const JinjaTemplate& other, nlohmann::json kwargs);

  RenderedChat render(std::span<const Message> messages, const Tokenizer& tokenizer,
                      bool open_answer) const;
  RenderedChat render_unfinished(std::span<const Message> messages,
                                 const Tokenizer& tokenizer) const;
  bool shows_reasoning() const;
  std::string digest() const;
  const nlohmann::json& kwargs() const { return kwargs_; }

 private:
  struct Engine;  // the processes and what all share
  struct Plan;    // the parts of a conversation, and the conversation with marks in their place
  struct Proof;   // a rendering and where its parts stand

  Plan plan(std::span<const Message> messages, bool mark_blank) const;
  nlohmann::json request(nlohmann::json messages, bool open) const;
  std::shared_ptr<const Frames> known_frames(const std::string& key) const;
  std::shared_ptr<const Frames> keep_frames(const std::string& key,
                                            const nlohmann::json& row) const;
  std::optional<Proof> prove(std::span<const Message> messages, bool open, std::string& text) const;
  RenderedChat tokens(const Proof& proof, std::string_view text, std::span<const Message> messages,
                      const Tokenizer& tokenizer, bool open) const;
  const std::string& answer_header() const;

  std::shared_ptr<Engine> engine_;
  nlohmann::json kwargs_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::shared_ptr<const Frames>> frames_;
  mutable std::optional<std::string> header_;
};

}  // namespace dex
