#include "common/text/chat_formats.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/error.h"
#include "common/text/utf8.h"

namespace dex {
namespace {

using Segments = std::vector<Segment>;
using Kind = Segment::Kind;

// One turn of a conversation: what comes before it and whether more follows decide its rendering in
// some formats.
struct Turn {
  const Message& message;
  const std::string& system;  // of the leading system message; empty when there is none
  bool first, last;           // first and last turn after the system message
};

// What the str.strip() of the published templates takes off.
bool is_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string trim(std::string_view text) {
  std::size_t begin = text.size(), end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint code = first_code_point(text.substr(at));
    if (!is_space(code.value)) {
      begin = std::min(begin, at);
      end = at + code.size;
    }
    at += code.size;
  }
  return begin < end ? std::string(text.substr(begin, end - begin)) : "";
}

std::string trim_newlines(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text);
}

struct Format {
  const char* name;
  void (*start)(Segments&, const std::string& system, bool has_system);
  void (*turn)(Segments&, const Turn&);
  void (*open)(Segments&);
};

// --- Llama 2: https://github.com/meta-llama/llama, chat_completion ---

void llama2_start(Segments&, const std::string&, bool) {}

void llama2_turn(Segments& out, const Turn& turn) {
  if (turn.message.role == "assistant") {
    out.push_back({Kind::answer, fmt::format(" {}", trim(turn.message.content))});
    out.push_back({Kind::text, " "});
    out.push_back({Kind::end, "</s>"});
    return;
  }
  const std::string system = turn.first && !turn.system.empty()
                                 ? fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n", turn.system)
                                 : "";
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
  out.push_back({answer ? Kind::answer : Kind::text, trim(turn.message.content)});
  out.push_back({answer ? Kind::end : Kind::control, "<|eot_id|>"});
}

void llama3_open(Segments& out) { llama3_header(out, "assistant"); }

// --- ChatML and what is built on it ---

void chatml_message(Segments& out, const std::string& role, const std::string& content) {
  const bool answer = role == "assistant";
  out.push_back({Kind::control, "<|im_start|>"});
  out.push_back({Kind::text, role + "\n"});
  out.push_back({answer ? Kind::answer : Kind::text, content});
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

// Qwen3: the last answer shows its reasoning, or an empty block when it has none; earlier answers
// lose theirs. Only an answer that begins with <think>, as the model writes it, has reasoning:
// elsewhere the string is text that was typed.
void qwen3_turn(Segments& out, const Turn& turn) {
  if (turn.message.role != "assistant") return chatml_turn(out, turn);
  std::string_view content = turn.message.content, reasoning;
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const std::size_t close =
      content.starts_with(kOpen) ? content.find(kClose) : std::string_view::npos;
  if (close != std::string_view::npos) {
    reasoning = content.substr(kOpen.size(), close - kOpen.size());
    content.remove_prefix(close + kClose.size());
  }
  if (close != std::string_view::npos || turn.last)
    while (content.starts_with('\n')) content.remove_prefix(1);
  chatml_open(out);
  if (turn.last) {
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
    out.push_back({Kind::answer, fmt::format(" {}", turn.message.content)});
    out.push_back({Kind::end, "</s>"});
  } else {
    out.push_back({Kind::text, "USER: " + turn.message.content + " "});
  }
}

void vicuna_open(Segments& out) { out.push_back({Kind::text, "ASSISTANT:"}); }

constexpr Format kFormats[] = {
    {"llama2", llama2_start, llama2_turn, llama2_open},
    {"llama3", llama3_start, llama3_turn, llama3_open},
    {"llama3.1", llama31_start, llama3_turn, llama3_open},
    {"chatml", chatml_start, chatml_turn, chatml_open},
    {"qwen3", chatml_start, qwen3_turn, chatml_open},
    {"qwen3-thinking", chatml_start, qwen3_turn, qwen3_thinking_open},
    {"smollm2", smollm2_start, chatml_turn, chatml_open},
    {"vicuna", vicuna_start, vicuna_turn, vicuna_open},
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
  }
  require(!open_answer || turns.size() % 2 == 1, ExitCode::usage,
          "the last message is the assistant's; wanted a user message to answer");
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
  for (std::size_t i = 0; i < turns.size(); ++i)
    format.turn(segments, {turns[i], system, i == 0, i + 1 == turns.size()});
  if (open_answer) format.open(segments);
  return segments;
}

}  // namespace dex
