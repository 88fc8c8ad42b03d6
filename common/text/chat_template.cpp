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
#include "common/text/supervised_tokens.h"
#include "common/text/template_file.h"

namespace dex {
namespace {

using nlohmann::json;
using Kind = Segment::Kind;

// Segments laid end to end.
class Layout {
 public:
  Layout(const Tokenizer& tokenizer, const std::string& name)
      : tokenizer_(tokenizer), name_(name) {}

  void add(const Segment& segment) {
    const std::size_t from = text_.size();
    text_ += segment.text;
    const Span span{from, text_.size()};
    if (segment.kind != Kind::text && segment.kind != Kind::answer) add_control(segment, span);
    if (segment.kind != Kind::text && segment.kind != Kind::control && segment.target)
      add_target(span);
  }

  RenderedChat tokens() const {
    return tokenize_marked({text_, controls_, targets_, name_}, tokenizer_);
  }

 private:
  void add_control(const Segment& segment, const Span& span) {
    const auto id = tokenizer_.special_id(segment.text);
    require(id.has_value() || segment.kind == Kind::tag, ExitCode::usage,
            "the chat template {} needs the token {}, which this tokenizer does not have; name "
            "another with --template",
            name_, segment.text);
    if (id) controls_.push_back({span, *id});
  }

  void add_target(const Span& span) {
    if (!targets_.empty() && targets_.back().end == span.begin)
      targets_.back().end = span.end;
    else if (span.begin < span.end)
      targets_.push_back(span);
  }

  const Tokenizer& tokenizer_;
  const std::string& name_;
  std::string text_;
  std::vector<Control> controls_;
  std::vector<Span> targets_;
};

// Ends where the last answer does.
void leave_open(std::vector<Segment>& segments) {
  const auto is_answer = [](const Segment& segment) {
    return segment.kind == Kind::answer || segment.kind == Kind::tag;
  };
  while (!segments.empty() && !is_answer(segments.back())) segments.pop_back();
}

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
  Layout layout(tokenizer, name_);
  for (const Segment& segment : chat_segments(name_, messages, open_answer)) layout.add(segment);
  return layout.tokens();
}

RenderedChat ChatTemplate::render_unfinished(std::span<const Message> messages,
                                             const Tokenizer& tokenizer) const {
  require(!messages.empty() && messages.back().role == "assistant", ExitCode::usage,
          "the last message has the role \"{}\"; wanted \"assistant\": an answer to go on with",
          messages.empty() ? "" : messages.back().role);
  if (jinja_) return jinja_->render_unfinished(messages, tokenizer);
  auto segments = chat_segments(name_, messages, /*open_answer=*/false);
  leave_open(segments);
  Layout layout(tokenizer, name_);
  for (const Segment& segment : segments) layout.add(segment);
  return layout.tokens();
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
  digest.add(std::string_view("text between controls in one piece"));
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
