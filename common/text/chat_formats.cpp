#include "common/text/chat_formats.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/error.h"
#include "common/text/chat_spans.h"
#include "common/text/thoughts.h"
#include "common/text/utf8.h"

namespace dex {
namespace {

using Segments = std::vector<Segment>;
using Kind = Segment::Kind;

// One turn of a conversation: what comes before it and whether more follows decide its rendering in
// some formats.
struct Turn {
  const Message& message;
  const std::string* system;  // of the leading system message; null when there is none
  bool first, last;           // first and last turn after the system message
  bool after_query;           // no user has asked since
};

std::string trim(std::string_view text) { return std::string(stripped(text)); }

std::string trim_newlines(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text);
}

struct Format {
  const char* name;
  bool shows_reasoning;
  void (*start)(Segments&, const std::string& system, bool has_system);
  void (*turn)(Segments&, const Turn&);
  void (*open)(Segments&);
};

// As it stands, for formats that know of no thoughts.
void add_answer(Segments& out, std::string_view content) {
  if (const auto thoughts = thoughts_of(content)) {
    out.push_back({Kind::answer, std::string(thoughts->before)});
    out.push_back({Kind::tag, std::string(kThinkOpen)});
    out.push_back({Kind::answer, std::string(thoughts->inside)});
    out.push_back({Kind::tag, std::string(kThinkClose)});
    content = thoughts->after;
  }
  out.push_back({Kind::answer, std::string(content)});
}

// --- Llama 2: https://github.com/meta-llama/llama, chat_completion ---

void llama2_start(Segments&, const std::string&, bool) {}

void llama2_turn(Segments& out, const Turn& turn) {
  if (turn.message.role == "assistant") {
    out.push_back({Kind::answer, " "});
    add_answer(out, trim(turn.message.content));
    out.push_back({Kind::text, " "});
    out.push_back({Kind::end, "</s>"});
    return;
  }
  const std::string system =
      turn.first && turn.system ? fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n", *turn.system) : "";
  out.push_back({Kind::control, "<s>"});
  out.push_back(
      {Kind::text, fmt::format("[INST] {} [/INST]", trim(system + turn.message.content))});
}

void llama2_open(Segments&) {}

// --- Llama 3 ---

void llama3_header(Segments& out, const std::string& role) {
  out.push_back({Kind::control, "<|start_header_id|>"});
  out.push_back({Kind::text, role});
  out.push_back({Kind::control, "<|end_header_id|>"});
  out.push_back({Kind::text, "\n\n"});
}

void llama3_start(Segments& out, const std::string& system, bool has_system) {
  out.push_back({Kind::control, "<|begin_of_text|>"});
  if (!has_system) return;
  llama3_header(out, "system");
  out.push_back({Kind::text, trim(system)});
  out.push_back({Kind::control, "<|eot_id|>"});
}

void llama31_start(Segments& out, const std::string& system, bool) {
  out.push_back({Kind::control, "<|begin_of_text|>"});
  llama3_header(out, "system");
  out.push_back({Kind::text, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n" +
                                 trim(system)});
  out.push_back({Kind::control, "<|eot_id|>"});
}

void llama3_turn(Segments& out, const Turn& turn) {
  const bool answer = turn.message.role == "assistant";
  llama3_header(out, turn.message.role);
  if (answer)
    add_answer(out, trim(turn.message.content));
  else
    out.push_back({Kind::text, trim(turn.message.content)});
  out.push_back({answer ? Kind::end : Kind::control, "<|eot_id|>"});
}

void llama3_open(Segments& out) { llama3_header(out, "assistant"); }

// --- ChatML and what is built on it ---

void chatml_message(Segments& out, const std::string& role, const std::string& content) {
  const bool answer = role == "assistant";
  out.push_back({Kind::control, "<|im_start|>"});
  out.push_back({Kind::text, role + "\n"});
  if (answer)
    add_answer(out, content);
  else
    out.push_back({Kind::text, content});
  out.push_back({answer ? Kind::end : Kind::control, "<|im_end|>"});
  out.push_back({Kind::text, "\n"});
}

void chatml_start(Segments& out, const std::string& system, bool has_system) {
  if (has_system) chatml_message(out, "system", system);
}

void smollm2_start(Segments& out, const std::string& system, bool has_system) {
  chatml_message(
      out, "system",
      has_system ? system : "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
}

void chatml_turn(Segments& out, const Turn& turn) {
  chatml_message(out, turn.message.role, turn.message.content);
}

void chatml_open(Segments& out) {
  out.push_back({Kind::control, "<|im_start|>"});
  out.push_back({Kind::text, "assistant\n"});
}

// Qwen3: the last answer shows its reasoning, or an empty block when it has none; answers before
// the last question lose theirs.
void qwen3_turn(Segments& out, const Turn& turn) {
  if (turn.message.role != "assistant") return chatml_turn(out, turn);
  std::string_view reasoning = turn.message.reasoning, content = turn.message.content;
  if (const auto thoughts = thoughts_of(content); thoughts && reasoning.empty()) {
    reasoning = thoughts->inside;
    content = thoughts->after;
    while (content.starts_with('\n')) content.remove_prefix(1);
  }
  chatml_open(out);
  if (turn.after_query && (turn.last || !reasoning.empty())) {
    while (content.starts_with('\n')) content.remove_prefix(1);
    const bool thought = !trim_newlines(reasoning).empty();
    out.push_back({thought ? Kind::end : Kind::control, "<think>"});
    out.push_back(
        {thought ? Kind::answer : Kind::text, fmt::format("\n{}\n", trim_newlines(reasoning))});
    out.push_back({thought ? Kind::end : Kind::control, "</think>"});
    out.push_back({thought ? Kind::answer : Kind::text, "\n\n"});
  }
  out.push_back({Kind::answer, std::string(content)});
  out.push_back({Kind::end, "<|im_end|>"});
  out.push_back({Kind::text, "\n"});
}

void qwen3_thinking_open(Segments& out) {
  chatml_open(out);
  out.push_back({Kind::control, "<think>"});
  out.push_back({Kind::text, "\n"});
}

// --- Vicuna 1.1 and 1.5: https://github.com/lm-sys/FastChat, conversation template vicuna_v1.1 ---

void vicuna_start(Segments& out, const std::string& system, bool has_system) {
  out.push_back({Kind::control, "<s>"});
  out.push_back(
      {Kind::text,
       has_system
           ? system
           : "A chat between a curious user and an artificial intelligence assistant. The "
             "assistant gives helpful, detailed, and polite answers to the user's questions."});
  out.push_back({Kind::text, " "});
}

void vicuna_turn(Segments& out, const Turn& turn) {
  if (turn.message.role == "assistant") {
    out.push_back({Kind::text, "ASSISTANT:"});
    out.push_back({Kind::answer, " "});
    add_answer(out, turn.message.content);
    out.push_back({Kind::end, "</s>"});
  } else {
    out.push_back({Kind::text, "USER: " + turn.message.content + " "});
  }
}

void vicuna_open(Segments& out) { out.push_back({Kind::text, "ASSISTANT:"}); }

constexpr Format kFormats[] = {
    {"llama2", false, llama2_start, llama2_turn, llama2_open},
    {"llama3", false, llama3_start, llama3_turn, llama3_open},
    {"llama3.1", false, llama31_start, llama3_turn, llama3_open},
    {"chatml", false, chatml_start, chatml_turn, chatml_open},
    {"qwen3", true, chatml_start, qwen3_turn, chatml_open},
    {"qwen3-thinking", true, chatml_start, qwen3_turn, qwen3_thinking_open},
    {"smollm2", false, smollm2_start, chatml_turn, chatml_open},
    {"vicuna", false, vicuna_start, vicuna_turn, vicuna_open},
};

void require_order(std::span<const Message> turns, bool open_answer) {
  require(!turns.empty(), ExitCode::usage,
          "a conversation has no user message; wanted at least one");
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const std::string_view wanted = i % 2 == 0 ? "user" : "assistant";
    require(turns[i].role == wanted, ExitCode::usage,
            "message {} after the system message has the role \"{}\"; wanted \"{}\": user and "
            "assistant take turns",
            i + 1, turns[i].role, wanted);
    require_utf8(turns[i].content, "a message");
    require_utf8(turns[i].reasoning, "a message's reasoning");
  }
  require(!open_answer || turns.size() % 2 == 1, ExitCode::usage,
          "the last message is the assistant's; wanted a user message to answer");
}

// What a tool answered is no question. Without any question: the last turn.
std::size_t last_query(std::span<const Message> turns) {
  for (std::size_t i = turns.size(); i-- > 0;)
    if (turns[i].role == "user" && !(turns[i].content.starts_with("<tool_response>") &&
                                     turns[i].content.ends_with("</tool_response>")))
      return i;
  return turns.size();
}

const Format& format_named(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [&](const Format& f) { return f.name == name; });
  require(found != std::end(kFormats), ExitCode::bug, "no chat format is named {}", name);
  return *found;
}

}  // namespace

std::vector<std::string> chat_format_names() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

bool chat_format_shows_reasoning(std::string_view name) {
  return format_named(name).shows_reasoning;
}

std::vector<Segment> chat_segments(std::string_view name, std::span<const Message> messages,
                                   bool open_answer) {
  const bool has_system = !messages.empty() && messages.front().role == "system";
  const std::string system = has_system ? messages.front().content : "";
  require_utf8(system, "the system message");
  const auto turns = messages.subspan(has_system ? 1 : 0);
  require_order(turns, open_answer);
  const Format& format = format_named(name);
  Segments segments;
  format.start(segments, system, has_system);
  const std::size_t query = last_query(turns);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const std::size_t from = segments.size();
    format.turn(segments, {turns[i], has_system ? &system : nullptr, i == 0, i + 1 == turns.size(),
                           i > query});
    for (std::size_t s = from; s < segments.size(); ++s) segments[s].target = turns[i].target;
  }
  if (open_answer) format.open(segments);
  return segments;
}

}  // namespace dex
