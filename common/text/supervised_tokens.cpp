#include "common/text/supervised_tokens.h"

#include <algorithm>
#include <optional>

#include "common/text/thoughts.h"

namespace dex {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

struct Control {  // a special token
  Span span;
  Token id;
};

// Of a text that starts at `begin` of the rendering.
void add_controls(std::string_view text, std::size_t begin, const Tokenizer& tokenizer,
                  std::vector<Control>& controls) {
  std::size_t from = 0;
  for (const Token id : tokenizer.encode_with_special(text)) {
    const std::string control = tokenizer.text_of_id(id);
    if (control.empty() || tokenizer.special_id(control) != id) continue;
    const std::size_t at = text.find(control, from);
    if (at == kNowhere) continue;
    from = at + control.size();
    controls.push_back({{begin + at, begin + from}, id});
  }
}

std::vector<Control> controls_of(const PlacedRendering& rendering, const Tokenizer& tokenizer) {
  std::vector<Control> controls;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < rendering.frames.texts.size(); ++i) {
    const std::string_view frame = rendering.frames.texts[i];
    add_controls(frame, begin, tokenizer, controls);
    begin += frame.size();
    if (i < rendering.spans.size()) begin = rendering.spans[i].end;
  }
  return controls;
}

class Targets {
 public:
  Targets(const PlacedRendering& rendering, const std::vector<Control>& controls)
      : rendering_(rendering), controls_(controls) {}

  // Where text is a target, in order.
  std::vector<Span> of(std::span<const Message> messages) {
    std::vector<std::size_t> answers(messages.size(), kNowhere), places(messages.size(), 0);
    for (std::size_t i = 0; i < rendering_.spans.size(); ++i) {
      const ChatPart& part = rendering_.parts[rendering_.frames.parts[i]];
      if (part.kind != ChatPart::Kind::answer) continue;
      answers[part.message] = i;
      ++places[part.message];
    }
    for (std::size_t m = 0; m < messages.size(); ++m) {
      if (messages[m].role != "assistant" || !messages[m].target) continue;
      if (places[m] == 1)
        add(answers[m]);
      else if (!rendering_.open)
        fail_unproven(rendering_.place);
    }
    std::sort(targets_.begin(), targets_.end(),
              [](const Span& a, const Span& b) { return a.begin < b.begin; });
    return std::move(targets_);
  }

 private:
  void add(std::size_t answer) {
    const Span span = rendering_.spans[answer];
    targets_.push_back({begin_of(answer), span.end});
    const auto next = std::find_if(controls_.begin(), controls_.end(),
                                   [&](const Control& c) { return c.span.begin >= span.end; });
    if (next == controls_.end()) return;
    const std::string_view gap = rendering_.text.substr(span.end, next->span.begin - span.end);
    const std::string_view control =
        rendering_.text.substr(next->span.begin, next->span.end - next->span.begin);
    const bool in_frame = answer + 1 == rendering_.spans.size() ||
                          next->span.end <= rendering_.spans[answer + 1].begin;
    // White space may stand before the model's own end token, as in Llama 2's format.
    if (in_frame && (gap.empty() || (is_blank_text(gap) && control == rendering_.end_token)))
      targets_.push_back(next->span);
  }

  // An answer begins with its thoughts and what leads to them, as the model writes it after the
  // template's header.
  std::size_t begin_of(std::size_t answer) const {
    const auto part = [&](std::size_t i) { return rendering_.parts[rendering_.frames.parts[i]]; };
    if (answer == 0 || part(answer - 1).kind != ChatPart::Kind::reasoning ||
        part(answer - 1).message != part(answer).message)
      return rendering_.spans[answer].begin;
    const std::size_t begin = rendering_.spans[answer - 1].begin,
                      frame = answer >= 2 ? rendering_.spans[answer - 2].end : 0;
    const std::string_view before = rendering_.text.substr(frame, begin - frame);
    const std::size_t header =
        rendering_.header.empty() ? kNowhere : before.rfind(rendering_.header);
    if (header != kNowhere) return frame + header + rendering_.header.size();
    return before.ends_with(kThinkOpen) ? begin - kThinkOpen.size() : begin;
  }

  const PlacedRendering& rendering_;
  const std::vector<Control>& controls_;
  std::vector<Span> targets_;
};

// Where each token of a run ends, from the run's start; nothing where the tokens' texts are not the
// run's, as after a change of normal form.
std::vector<std::size_t> ends_of(std::string_view run, std::span<const Token> ids,
                                 const Tokenizer& tokenizer) {
  std::vector<std::size_t> ends;
  std::string text;
  for (const Token id : ids) {
    text += tokenizer.decode({&id, 1}, false);
    ends.push_back(text.size());
  }
  if (text == run) return ends;
  if (!text.starts_with(' ') || std::string_view(text).substr(1) != run) return {};
  for (std::size_t& end : ends) --end;  // SentencePiece puts a space before a text
  return ends;
}

class Writer {
 public:
  Writer(const PlacedRendering& rendering, const Tokenizer& tokenizer, std::vector<Span> targets)
      : rendering_(rendering), tokenizer_(tokenizer), targets_(std::move(targets)) {}

  void control(const Control& control) {
    chat_.tokens.push_back(control.id);
    chat_.supervised.push_back(is_target(control.span));
  }

  void run(std::size_t begin, std::size_t end) {
    if (begin == end) return;
    const std::string_view text = rendering_.text.substr(begin, end - begin);
    const std::vector<Token> ids = tokenizer_.encode(text);
    const std::size_t first = chat_.tokens.size();
    chat_.tokens.insert(chat_.tokens.end(), ids.begin(), ids.end());
    chat_.supervised.resize(chat_.tokens.size(), 0);
    const auto marks = std::span(chat_.supervised).subspan(first);
    std::vector<Span> inside;
    for (const Span& target : targets_)
      if (target.begin < end && target.end > begin)
        inside.push_back(
            {std::max(target.begin, begin) - begin, std::min(target.end, end) - begin});
    if (inside.empty()) return;
    if (inside.front().begin == 0 && inside.front().end == text.size())
      return std::fill(marks.begin(), marks.end(), 1);
    const std::vector<std::size_t> ends = ends_of(text, ids, tokenizer_);
    if (ends.empty()) return mark_by_prefixes(text, ids, inside, marks);
    std::size_t from = 0, target = 0;
    for (std::size_t i = 0; i < ids.size(); from = ends[i++]) {
      while (target < inside.size() && inside[target].end <= from) ++target;
      if (target == inside.size()) break;
      marks[i] = ends[i] > inside[target].begin;
    }
  }

  RenderedChat take() { return std::move(chat_); }

 private:
  // A place that no token crosses shows as a text whose ids are the first of the whole run's.
  void mark_by_prefixes(std::string_view text, const std::vector<Token>& ids,
                        const std::vector<Span>& inside, std::span<std::uint8_t> marks) const {
    const auto tokens_before = [&](std::size_t place) {
      const std::vector<Token> before = tokenizer_.encode(text.substr(0, place));
      if (before.size() > ids.size() || !std::equal(before.begin(), before.end(), ids.begin()))
        fail_unproven(rendering_.place);
      return before.size();
    };
    for (const Span& target : inside) {
      const std::size_t from = tokens_before(target.begin), to = tokens_before(target.end);
      std::fill(marks.begin() + std::ptrdiff_t(from), marks.begin() + std::ptrdiff_t(to), 1);
    }
  }

  bool is_target(const Span& span) const {
    return std::any_of(targets_.begin(), targets_.end(), [&](const Span& target) {
      return span.begin < target.end && span.end > target.begin;
    });
  }

  const PlacedRendering& rendering_;
  const Tokenizer& tokenizer_;
  std::vector<Span> targets_;
  RenderedChat chat_;
};

}  // namespace

bool has_controls(std::string_view text, const Tokenizer& tokenizer) {
  std::vector<Control> controls;
  add_controls(text, 0, tokenizer, controls);
  return !controls.empty();
}

void fail_unproven(std::string_view place) {
  throw ConversationRefused(
      ConversationRefused::Reason::unproven,
      fmt::format("{}: where the messages stand in the rendering cannot be shown, so targets could "
                  "be wrong",
                  place));
}

RenderedChat tokenize_rendering(const PlacedRendering& rendering, std::span<const Message> messages,
                                const Tokenizer& tokenizer) {
  const std::vector<Control> controls = controls_of(rendering, tokenizer);
  Writer writer(rendering, tokenizer, Targets(rendering, controls).of(messages));
  std::size_t at = 0;
  for (const Control& control : controls) {
    writer.run(at, control.span.begin);
    writer.control(control);
    at = control.span.end;
  }
  writer.run(at, rendering.text.size());
  RenderedChat chat = writer.take();
  // The ids are those of the whole text but for controls that somebody typed.
  if (chat.tokens != tokenizer.encode_with_special(rendering.text) &&
      std::none_of(rendering.spans.begin(), rendering.spans.end(), [&](const Span& span) {
        return has_controls(rendering.text.substr(span.begin, span.end - span.begin), tokenizer);
      }))
    fail_unproven(rendering.place);
  return chat;
}

}  // namespace dex
