#include "data/sample.h"

#include <algorithm>

namespace dex {
namespace {

// Templates put a few tokens around a message; a cut text must fill the limit without them.
constexpr std::size_t kFrameTokens = 64;
constexpr std::size_t kFirstBytesPerToken = 6;  // most texts fit at the first try

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The first place at or after `from` between a letter and a space: byte-level BPE splits there
// before it merges, no SentencePiece piece of a word model crosses it, normalisation changes
// nothing there. The text's size if there is none.
std::size_t safe_cut(const std::string& text, std::size_t from) {
  for (std::size_t i = std::max<std::size_t>(from, 1); i < text.size(); ++i)
    if (is_letter(text[i - 1]) && (text[i] == ' ' || text[i] == '\n')) return i;
  return text.size();
}

// Where an answer's thoughts end in its text: without that end they would be taken for the answer.
std::size_t end_of_thoughts(const Message& message) {
  std::size_t end = 0;
  if (message.role != "assistant") return end;
  for (const std::string_view tag : {"</think>", "</thinking>", "[/THINK]"})
    if (const auto at = message.content.rfind(tag); at != std::string::npos)
      end = std::max(end, at + tag.size());
  return end;
}

// Messages up to about `bytes` of text, thoughts whole. Two more follow a cut one, emptied:
// templates treat the last turn and the one after a system message differently from others.
std::vector<Message> capped(std::span<const Message> messages, std::size_t bytes, bool& cut) {
  std::vector<Message> kept;
  std::size_t left = messages.size();
  cut = false;
  for (const Message& message : messages) {
    if (left-- == 0) break;
    kept.push_back({message.role, "", "", message.target});
    if (cut) continue;
    kept.back().reasoning = message.reasoning;
    bytes -= std::min(bytes, message.reasoning.size());
    const std::size_t size = message.content.size();
    const std::size_t from = std::max(bytes, end_of_thoughts(message));
    const std::size_t end = size > from ? safe_cut(message.content, from) : size;
    cut = end < size;
    if (cut) left = std::min<std::size_t>(left, 2);
    kept.back().content = message.content.substr(0, end);
    bytes -= std::min(bytes, end);
  }
  return kept;
}

}  // namespace

Sample render_sample(std::span<const Message> messages, std::size_t max_len, const Render& render) {
  bool cut = true;
  RenderedChat chat;
  for (std::size_t bytes = kFirstBytesPerToken * (max_len + kFrameTokens); cut; bytes *= 2) {
    const auto kept = capped(messages, bytes, cut);
    chat = render(kept);
    if (chat.tokens.size() >= max_len + kFrameTokens) break;
  }
  const std::size_t length = std::min(chat.tokens.size(), max_len);
  chat.tokens.resize(length);
  chat.supervised.resize(length);
  return {std::move(chat.tokens), std::move(chat.supervised)};
}

Sample render_unfinished_sample(std::span<const Message> messages, std::size_t max_len,
                                const Render& render) {
  if (!messages.back().target) return render_sample(messages, max_len, render);
  // The end that stands after the last answer must be seen to be left out, so more is rendered than
  // is kept.
  Sample sample = render_sample(messages, max_len + kFrameTokens, render);
  std::size_t length = sample.tokens.size();
  if (length < max_len + kFrameTokens) {
    while (length > 0 && !sample.supervised[length - 1]) --length;
    length -= length > 0;
  }
  length = std::min(length, max_len);
  sample.tokens.resize(length);
  sample.supervised.resize(length);
  return sample;
}

bool has_target(const Sample& sample) {
  const auto& marks = sample.supervised;
  return !marks.empty() && std::find(marks.begin() + 1, marks.end(), 1) != marks.end();
}

}  // namespace dex
