#include "common/text/jinja_template.h"

#include <algorithm>
#include <ctime>

#include "common/base/allowed_cores.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/text/supervised_tokens.h"
#include "common/text/thoughts.h"
#include "common/text/utf8.h"

namespace dex {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kDeadline{60};
constexpr std::int64_t kMostMemory = std::int64_t{4} << 30;  // of a Python process
constexpr std::size_t kMostFrames = 4096;                    // kept
constexpr int kMostProcesses = 8;

json start_request(const TemplateFile& file, const TemplateTokens& tokens, std::time_t now) {
  return {{"template", file.text},
          {"sees", tokens.values},
          {"now", std::int64_t(now)},
          {"memory", kMostMemory},
          {"seconds", kDeadline.count() + 5}};
}

json message_json(const Message& message) {
  json made = {{"role", message.role}, {"content", message.content}};
  if (!message.reasoning.empty()) made["reasoning_content"] = message.reasoning;
  return made;
}

json messages_json(std::span<const Message> messages) {
  json list = json::array();
  for (const Message& message : messages) list.push_back(message_json(message));
  return list;
}

void require_texts(std::span<const Message> messages) {
  for (const Message& message : messages) {
    require_utf8(message.content, "a message");
    require_utf8(message.reasoning, "a message's reasoning");
  }
}

[[noreturn]] void fail_nonsense(const json& answer) {
  fail(ExitCode::temporary, "Python answers {} instead of renderings",
       answer.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 200));
}

struct Started {
  std::unique_ptr<PythonProcess> process;
  json answer;  // to the request that brings the template
};

std::unique_ptr<PythonProcess> run(const std::string& python) {
  return std::make_unique<PythonProcess>(python, kRenderTemplate, kDeadline);
}

Started start(std::unique_ptr<PythonProcess> process, const json& request) {
  Started made{std::move(process), {}};
  made.answer = made.process->ask(request);
  if (!made.answer.is_object()) fail_nonsense(made.answer);
  require(!made.answer.contains("error"), ExitCode::usage, "{}",
          made.answer.value("error", std::string("no error named")));
  return made;
}

}  // namespace

struct JinjaTemplate::Engine {
  std::string place;  // of the template, for messages
  std::string text, stem, version;
  std::map<std::string, std::string> tokens;
  std::string date;  // that the template sees; "" where it does not ask
  std::unique_ptr<PythonPool> pool;

  // Rows of {"text"} or {"error"}, one per request.
  json render(const json& requests) {
    const json rows = pool->ask(requests);
    if (!rows.is_array() || rows.size() != requests.size()) fail_nonsense(rows);
    for (const json& row : rows) {
      const bool whole = row.is_object() && row.size() == 1 &&
                         (row.contains("text") || row.contains("error")) &&
                         row.begin()->is_string();
      if (!whole) fail_nonsense(rows);
    }
    return rows;
  }
};

JinjaTemplate::JinjaTemplate(const TemplateFile& file, const TemplateTokens& tokens,
                             const std::string& python, json kwargs)
    : engine_(std::make_shared<Engine>()), kwargs_(std::move(kwargs)) {
  Engine& engine = *engine_;
  engine.place = file.path.string();
  engine.text = file.text;
  engine.tokens = tokens.values;
  engine.stem = "dexMark";
  while (engine.text.find(engine.stem) != std::string::npos) engine.stem += 'x';
  const std::time_t now = std::time(nullptr);
  const json request = start_request(file, tokens, now);
  std::string reasons, chosen;
  Started first;
  for (const std::string& choice : python_choices(python)) {
    bool runs = false;
    try {
      auto process = run(choice);
      runs = true;
      first = start(std::move(process), request);
      chosen = choice;
      break;
    } catch (const Error& error) {
      if (!runs && error.code() == ExitCode::temporary) throw;  // the next one would not run either
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  require(
      first.process != nullptr, ExitCode::usage,
      "{}: this chat template is not built in, so Python with jinja2 has to render it: {}; name "
      "one that has it with --python, or a built-in with --template: {}",
      engine.place, reasons, fmt::join(ChatTemplate::names(), ", "));
  const json& answer = first.answer;
  require(!answer.contains("refused"), ExitCode::usage, "{}: not a chat template of Jinja's: {}",
          engine.place, answer.value("refused", std::string()));
  engine.version = answer.value("jinja2", std::string());
  for (const json& name : answer.value("reads", json::array())) {
    const std::string read = name.get<std::string>();
    require(tokens.knows(read) || kwargs_.contains(read), ExitCode::usage,
            "{}: the template reads {}, which neither tokenizer_config.json nor "
            "special_tokens_map.json beside it has",
            engine.place, read);
  }
  if (engine.text.find("strftime_now") != std::string::npos) {
    std::tm local{};
    localtime_r(&now, &local);
    char date[32];
    engine.date.assign(date, std::strftime(date, sizeof date, "%F", &local));
  }
  const int most = std::clamp(allowed_cores(), 1, kMostProcesses);
  engine.pool = std::make_unique<PythonPool>(
      std::move(first.process), [chosen, request] { return start(run(chosen), request).process; },
      most);
}

JinjaTemplate::JinjaTemplate(const JinjaTemplate& other, json kwargs)
    : engine_(other.engine_), kwargs_(std::move(kwargs)) {}

// --- Marks ---

struct JinjaTemplate::Plan {
  std::vector<ChatPart> parts;
  std::vector<std::string_view> texts;  // of the parts
  json messages = json::array();        // with marks in their place
};

JinjaTemplate::Plan JinjaTemplate::plan(std::span<const Message> messages, bool mark_blank) const {
  Plan made;
  const auto part = [&](std::size_t message, ChatPart::Kind kind, std::string_view text) {
    if (!mark_blank && is_blank_text(text)) return std::string(text);
    made.parts.push_back({message, kind});
    made.texts.push_back(text);
    return mark_of(engine_->stem, made.parts.size() - 1);
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    json marked = {{"role", message.role}};
    const std::string_view content = message.content;
    const bool answer = message.role == "assistant";
    if (!message.reasoning.empty())
      marked["reasoning_content"] = part(i, ChatPart::Kind::reasoning, message.reasoning);
    const auto thoughts = answer && message.reasoning.empty() ? thoughts_of(content) : std::nullopt;
    if (thoughts) {
      std::string text(thoughts->before);
      text += kThinkOpen;
      text += part(i, ChatPart::Kind::reasoning, thoughts->inside);
      text += kThinkClose;
      text += part(i, ChatPart::Kind::answer, thoughts->after);
      marked["content"] = text;
    } else {
      marked["content"] = part(i, answer ? ChatPart::Kind::answer : ChatPart::Kind::other, content);
    }
    made.messages.push_back(std::move(marked));
  }
  return made;
}

json JinjaTemplate::request(json messages, bool open) const {
  return {{"messages", std::move(messages)}, {"open", open}, {"kwargs", kwargs_}};
}

std::shared_ptr<const Frames> JinjaTemplate::known_frames(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = frames_.find(key);
  return found == frames_.end() ? nullptr : found->second;
}

std::shared_ptr<const Frames> JinjaTemplate::keep_frames(const std::string& key,
                                                         const json& row) const {
  if (!row.contains("text")) return nullptr;
  auto frames = std::make_shared<const Frames>(
      cut_at_marks(row["text"].get_ref<const std::string&>(), engine_->stem));
  const std::lock_guard lock(mutex_);
  if (frames_.size() >= kMostFrames) frames_.clear();
  frames_.emplace(key, frames);
  return frames;
}

struct JinjaTemplate::Proof {
  std::vector<ChatPart> parts;
  std::shared_ptr<const Frames> frames;
  std::vector<Span> spans;  // of the frames' parts
};

// `text` becomes the rendering, whether its parts are found or not.
std::optional<JinjaTemplate::Proof> JinjaTemplate::prove(std::span<const Message> messages,
                                                         bool open, std::string& text) const {
  const bool blank_answer = std::any_of(messages.begin(), messages.end(), [](const Message& m) {
    return m.role == "assistant" && is_blank_text(m.content);
  });
  const json whole = request(messages_json(messages), open);
  bool rendered = false;
  for (const bool mark_blank : {blank_answer, true}) {
    Plan marks = plan(messages, mark_blank);
    const json marked = request(marks.messages, open);
    const std::string key = marked.dump();
    auto frames = known_frames(key);
    if (!frames || !rendered) {
      json requests = json::array();
      if (!rendered) requests.push_back(whole);
      if (!frames) requests.push_back(marked);
      json rows = engine_->render(requests);
      if (!rendered) {
        if (rows[0].contains("error"))
          throw ConversationRefused(
              ConversationRefused::Reason::by_template,
              fmt::format("{}: {}", engine_->place, rows[0]["error"].get<std::string>()));
        text = std::move(rows[0]["text"].get_ref<std::string&>());
        rendered = true;
      }
      if (!frames) frames = keep_frames(key, rows.back());
    }
    if (frames)
      if (auto spans = place_parts(text, *frames, marks.texts))
        return Proof{std::move(marks.parts), std::move(frames), std::move(*spans)};
  }
  return std::nullopt;
}

// What stands before an answer that the template asks for.
const std::string& JinjaTemplate::answer_header() const {
  {
    const std::lock_guard lock(mutex_);
    if (header_) return *header_;
  }
  const json asked = json::array({{{"role", "user"}, {"content", mark_of(engine_->stem, 0)}}});
  const json rows = engine_->render(json::array({request(asked, true), request(asked, false)}));
  std::string header;
  if (rows[0].contains("text") && rows[1].contains("text")) {
    const std::string open = rows[0]["text"], closed = rows[1]["text"];
    if (open.starts_with(closed)) header = open.substr(closed.size());
  }
  const std::lock_guard lock(mutex_);
  if (!header_) header_ = header;
  return *header_;
}

// --- Ids ---

RenderedChat JinjaTemplate::tokens(const Proof& proof, std::string_view text,
                                   std::span<const Message> messages, const Tokenizer& tokenizer,
                                   bool open) const {
  const auto end = engine_->tokens.find("eos_token");
  const std::string_view end_token =
      end == engine_->tokens.end() ? std::string_view() : std::string_view(end->second);
  return tokenize_rendering({text, *proof.frames, proof.spans, proof.parts, answer_header(),
                             end_token, engine_->place, open},
                            messages, tokenizer);
}

RenderedChat JinjaTemplate::render(std::span<const Message> messages, const Tokenizer& tokenizer,
                                   bool open_answer) const {
  require_texts(messages);
  std::string text;
  const auto proof = prove(messages, open_answer, text);
  if (!proof && open_answer &&
      std::none_of(messages.begin(), messages.end(), [&](const Message& message) {
        return has_controls(message.content, tokenizer) ||
               has_controls(message.reasoning, tokenizer);
      })) {
    RenderedChat chat{tokenizer.encode_with_special(text), {}};
    chat.supervised.resize(chat.tokens.size());
    return chat;
  }
  if (!proof) fail_unproven(engine_->place);
  return tokens(*proof, text, messages, tokenizer, open_answer);
}

RenderedChat JinjaTemplate::render_unfinished(std::span<const Message> messages,
                                              const Tokenizer& tokenizer) const {
  require_texts(messages);
  std::string text;
  auto proof = prove(messages, /*open=*/false, text);
  if (!proof || proof->frames->parts.empty()) fail_unproven(engine_->place);
  const ChatPart& last = proof->parts[proof->frames->parts.back()];
  if (last.message + 1 != messages.size() || last.kind != ChatPart::Kind::answer)
    fail_unproven(engine_->place);
  text.resize(proof->spans.back().end);
  auto frames = std::make_shared<Frames>(*proof->frames);
  frames->texts.back().clear();
  proof->frames = std::move(frames);
  return tokens(*proof, text, messages, tokenizer, /*open=*/true);
}

bool JinjaTemplate::shows_reasoning() const {
  const json asked = {{{"role", "user"}, {"content", mark_of(engine_->stem, 0)}},
                      {{"role", "assistant"},
                       {"reasoning_content", mark_of(engine_->stem, 1)},
                       {"content", mark_of(engine_->stem, 2)}}};
  const json row = engine_->render(json::array({request(asked, false)}))[0];
  return row.contains("text") && row["text"].get_ref<const std::string&>().find(
                                     mark_of(engine_->stem, 1)) != std::string::npos;
}

std::string JinjaTemplate::digest() const {
  const json seen = {engine_->text, engine_->tokens, kwargs_, engine_->version, engine_->date};
  return sha256_of(seen.dump());
}

}  // namespace dex
