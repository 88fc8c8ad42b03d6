#include "common/text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json_file.h"
#include "common/text/chat_formats.h"

namespace dex {
namespace {

using nlohmann::json;
using Kind = Segment::Kind;

// Tokenizes segments; text waits until it is known what follows it.
class Writer {
 public:
  Writer(const Tokenizer& tokenizer, const std::string& name)
      : tokenizer_(tokenizer), name_(name) {}

  void write(const Segment& segment) {
    if (segment.kind == Kind::text) {
      waiting_ += segment.text;
      return;
    }
    flush();
    if (segment.kind == Kind::answer) return add_text(segment.text, true);
    const auto id = tokenizer_.special_id(segment.text);
    require(id.has_value(), ExitCode::usage,
            "the chat template {} needs the token {}, which this tokenizer does not have; name "
            "another with --template",
            name_, segment.text);
    result_.tokens.push_back(*id);
    result_.supervised.push_back(segment.kind == Kind::end);
    after_control_ = true;
  }

  RenderedChat finish() {
    flush();
    return std::move(result_);
  }

 private:
  void flush() {
    if (!waiting_.empty()) add_text(waiting_, false);
    waiting_.clear();
  }

  void add_text(const std::string& text, bool supervised) {
    // Answers go on from their header even where a control stands between.
    const bool whole = after_control_ && !supervised;
    const std::vector<Token> ids =
        whole ? tokenizer_.encode(text) : tokenizer_.encode_continuation(text);
    result_.tokens.insert(result_.tokens.end(), ids.begin(), ids.end());
    result_.supervised.insert(result_.supervised.end(), ids.size(), supervised);
    after_control_ = false;
  }

  const Tokenizer& tokenizer_;
  const std::string& name_;
  RenderedChat result_;
  std::string waiting_;
  bool after_control_ = true;
};

// The name that a published template's text gives away, or "".
std::string_view recognised(const std::string& jinja) {
  const auto has = [&](std::string_view mark) { return jinja.find(mark) != std::string::npos; };
  if (has("<|start_header_id|>")) return has("Cutting Knowledge Date") ? "llama3.1" : "llama3";
  if (has("<|im_start|>")) {
    if (has("You are a helpful AI assistant named SmolLM, trained by Hugging Face"))
      return "smollm2";
    if (has("<think>")) return has("assistant\\n<think>\\n' }}") ? "qwen3-thinking" : "qwen3";
    return has("You are ") ? "" : "chatml";  // another default system message
  }
  if (has("[INST]") && has("<<SYS>>")) return "llama2";
  if (has("USER:") && has("ASSISTANT:")) return "vicuna";
  return "";
}

// A template is a text, or a list of named ones.
std::string template_text(const json& config) {
  const json field = config.value("chat_template", json());
  if (field.is_string()) return field.get<std::string>();
  if (!field.is_array()) return "";
  for (const json& entry : field)
    if (entry.is_object() && entry.value("name", json()) == json("default") &&
        entry.value("template", json()).is_string())
      return entry["template"].get<std::string>();
  return "";
}

}  // namespace

std::vector<std::string> ChatTemplate::names() { return chat_format_names(); }

ChatTemplate ChatTemplate::named(std::string_view name) {
  const auto known = names();
  require(std::find(known.begin(), known.end(), name) != known.end(), ExitCode::usage,
          "no chat template is named \"{}\"; there are {}", name, fmt::join(known, ", "));
  return ChatTemplate(std::string(name));
}

ChatTemplate ChatTemplate::of_model(const std::filesystem::path& model_dir) {
  std::filesystem::path path = model_dir / "chat_template.jinja";
  std::string jinja;
  if (std::filesystem::exists(path)) {
    jinja = read_file(path);
  } else if (path = model_dir / "tokenizer_config.json"; std::filesystem::exists(path)) {
    jinja = template_text(read_json_object(path));
  }
  require(!jinja.empty(), ExitCode::usage,
          "{}: has no chat template; choose one with --template: {}", model_dir.string(),
          fmt::join(names(), ", "));
  const std::string_view name = recognised(jinja);
  require(!name.empty(), ExitCode::usage,
          "{}: its chat template is none that is known here; choose one with --template: {}",
          path.string(), fmt::join(names(), ", "));
  return named(name);
}

RenderedChat ChatTemplate::render(std::span<const Message> messages, const Tokenizer& tokenizer,
                                  bool open_answer) const {
  Writer writer(tokenizer, name_);
  for (const Segment& segment : chat_segments(name_, messages, open_answer)) writer.write(segment);
  return writer.finish();
}

std::string ChatTemplate::digest() const {
  const Message probe[] = {
      {"system", " s "},  {"user", " u1 "},        {"assistant", "<think>\nr\n</think>\n\n a1 "},
      {"user", "\nu2\n"}, {"assistant", "\na2\n"}, {"user", "u3"}};
  Sha256 digest;
  const auto add = [&](std::span<const Message> messages, bool open_answer) {
    for (const Segment& segment : chat_segments(name_, messages, open_answer))
      digest.add(std::to_string(int(segment.kind)) + segment.text + '\0');
  };
  const std::span<const Message> all(probe);
  add(all, true);
  add(all.first(5), false);
  add(all.subspan(1, 2), false);
  return digest.hex();
}

}  // namespace dex
