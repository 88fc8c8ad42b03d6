#include "common/text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/text/chat_formats.h"
#include "common/text/jinja_template.h"
#include "common/text/published_templates.h"
#include "common/text/template_file.h"

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
    const bool answer = segment.kind == Kind::answer || segment.kind == Kind::tag;
    const auto tag = segment.kind == Kind::tag ? tokenizer_.special_id(segment.text) : std::nullopt;
    if (tag) return add_control(*tag, segment.target);
    if (answer || segment.kind == Kind::text) {
      if (answer != answer_ || (answer && segment.target != target_)) flush();
      answer_ = answer;
      target_ = answer && segment.target;
      waiting_ += segment.text;
      return;
    }
    const auto id = tokenizer_.special_id(segment.text);
    require(id.has_value(), ExitCode::usage,
            "the chat template {} needs the token {}, which this tokenizer does not have; name "
            "another with --template",
            name_, segment.text);
    add_control(*id, segment.kind == Kind::end && segment.target);
  }

  RenderedChat finish() {
    flush();
    return std::move(result_);
  }

 private:
  void add_control(Token id, bool target) {
    flush();
    result_.tokens.push_back(id);
    result_.supervised.push_back(target);
    after_control_ = true;
  }

  void flush() {
    if (waiting_.empty()) return;
    // Answers go on from their header even where a control stands between.
    const bool whole = after_control_ && !answer_;
    const std::vector<Token> ids =
        whole ? tokenizer_.encode(waiting_) : tokenizer_.encode_continuation(waiting_);
    result_.tokens.insert(result_.tokens.end(), ids.begin(), ids.end());
    result_.supervised.insert(result_.supervised.end(), ids.size(), target_);
    after_control_ = false;
    waiting_.clear();
  }

  const Tokenizer& tokenizer_;
  const std::string& name_;
  RenderedChat result_;
  std::string waiting_;  // text of one kind
  bool answer_ = false, target_ = false, after_control_ = true;
};

json kwargs_of(const std::string& text) {
  if (text.empty()) return json::object();
  json kwargs;
  try {
    kwargs = json::parse(text);
  } catch (const json::exception& error) {
    fail(ExitCode::usage, "the template's kwargs are no JSON: {}", error.what());
  }
  require(kwargs.is_object(), ExitCode::usage, "the template's kwargs are {}, wanted a JSON object",
          kwargs.type_name());
  for (const char* name : {"messages", "add_generation_prompt", "tools", "documents"})
    require(!kwargs.contains(name), ExitCode::usage,
            "the template's kwargs hold \"{}\", which is not theirs to set", name);
  return kwargs;
}

// A built-in writes begin and end tokens of its own: they must be this model's.
bool writes_tokens_of(const PublishedTemplate& known, const TemplateTokens& tokens, bool config) {
  const auto same = [&](const char* name, std::string_view wanted) {
    const auto found = tokens.values.find(name);
    if (wanted.empty()) return true;
    return found == tokens.values.end() ? !config : found->second == wanted;
  };
  return same("bos_token", known.bos) && same("eos_token", known.eos);
}

}  // namespace

struct ChatTemplate::Source {
  TemplateFile file;
  TemplateTokens tokens;
  std::string python;

  // The processes are started once, for whatever kwargs.
  std::shared_ptr<const JinjaTemplate> with(json kwargs) const {
    const std::lock_guard lock(mutex);
    if (started) return std::make_shared<const JinjaTemplate>(*started, std::move(kwargs));
    started = std::make_shared<const JinjaTemplate>(file, tokens, python, std::move(kwargs));
    return started;
  }

  mutable std::mutex mutex;
  mutable std::shared_ptr<const JinjaTemplate> started;
};

std::vector<std::string> ChatTemplate::names() { return chat_format_names(); }

ChatTemplate ChatTemplate::named(std::string_view name) {
  const auto known = names();
  require(std::find(known.begin(), known.end(), name) != known.end(), ExitCode::usage,
          "no chat template is named \"{}\" and no file is; there are {}", name,
          fmt::join(known, ", "));
  return ChatTemplate(std::string(name), nullptr);
}

ChatTemplate ChatTemplate::of_file(TemplateFile file, const std::filesystem::path& model_dir,
                                   const TemplateOptions& options) {
  auto source = std::make_shared<Source>();
  source->tokens = read_template_tokens(model_dir);
  source->python = options.python;
  const PublishedTemplate* known = published_template(file.text);
  const bool config = std::filesystem::exists(model_dir / "tokenizer_config.json");
  source->file = std::move(file);
  json kwargs = kwargs_of(options.kwargs);
  if (known && kwargs.empty() && writes_tokens_of(*known, source->tokens, config))
    return ChatTemplate(known->built_in, std::move(source));
  return rendered_by_python(std::move(source), std::move(kwargs));
}

ChatTemplate ChatTemplate::rendered_by_python(std::shared_ptr<const Source> source, json kwargs) {
  const std::string name = "jinja-" + sha256_of(source->file.text).substr(0, 12);
  auto jinja = source->with(std::move(kwargs));
  ChatTemplate made(name, std::move(source));
  made.jinja_ = std::move(jinja);
  return made;
}

ChatTemplate ChatTemplate::of_model(const std::filesystem::path& model_dir,
                                    const TemplateOptions& options) {
  auto file = find_template(model_dir);
  require(file.has_value(), ExitCode::usage,
          "{}: has no chat template; choose one with --template: {}, or a file of Jinja's",
          model_dir.string(), fmt::join(names(), ", "));
  return of_file(std::move(*file), model_dir, options);
}

ChatTemplate ChatTemplate::chosen(const std::string& choice, const std::filesystem::path& model_dir,
                                  const TemplateOptions& options) {
  if (choice.empty()) return of_model(model_dir, options);
  const auto known = names();
  const bool is_name = std::find(known.begin(), known.end(), choice) != known.end();
  if (!is_name && std::filesystem::is_regular_file(choice))
    return of_file(read_template(choice), model_dir, options);
  const ChatTemplate built_in = named(choice);
  return options.kwargs.empty() ? built_in : built_in.with_kwargs(options.kwargs);
}

ChatTemplate ChatTemplate::with_kwargs(const std::string& text) const {
  json kwargs = jinja_ ? jinja_->kwargs() : json::object();
  kwargs.update(kwargs_of(text));
  if (kwargs.empty()) return *this;
  require(source_ != nullptr, ExitCode::usage,
          "the built-in chat template {} takes no kwargs; a model's own and a file of Jinja's do",
          name_);
  return rendered_by_python(source_, std::move(kwargs));
}

RenderedChat ChatTemplate::render(std::span<const Message> messages, const Tokenizer& tokenizer,
                                  bool open_answer) const {
  if (jinja_) return jinja_->render(messages, tokenizer, open_answer);
  Writer writer(tokenizer, name_);
  for (const Segment& segment : chat_segments(name_, messages, open_answer)) writer.write(segment);
  return writer.finish();
}

bool ChatTemplate::shows_reasoning() const {
  return jinja_ ? jinja_->shows_reasoning() : chat_format_shows_reasoning(name_);
}

std::string ChatTemplate::digest() const {
  if (jinja_) return jinja_->digest();
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
