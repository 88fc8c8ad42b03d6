#include "common/text/supervised_tokens.h"

#include <algorithm>
#include <optional>

#include "common/text/thoughts.h"

namespace dex {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

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
    const auto next = std::lower_bound(
        controls_.begin(), controls_.end(), span.end,
        [](const Control& control, std::size_t end) { return control.span.begin < end; });
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

class Writer {
 public:
  Writer(const MarkedText& marked, const Tokenizer& tokenizer)
      : marked_(marked),
        tokenizer_(tokenizer),
        space_first_(tokenizer.encode("x") != tokenizer.encode_continuation("x")) {}

  void control(const Control& control) {
    chat_.tokens.push_back(control.id);
    chat_.supervised.push_back(!targets_in(control.span).empty());
  }

  void run(const Span& span) {
    if (span.begin == span.end) return;
    const std::string_view text = marked_.text.substr(span.begin, span.end - span.begin);
    const std::vector<Token> ids = tokenizer_.encode(text);
    const std::size_t first = chat_.tokens.size();
    chat_.tokens.insert(chat_.tokens.end(), ids.begin(), ids.end());
    chat_.supervised.resize(chat_.tokens.size(), 0);
    const auto marks = std::span(chat_.supervised).subspan(first);
    const std::vector<Span> inside = targets_in(span);
    if (inside.empty() || mark_by_texts(text, ids, inside, marks)) return;
    std::fill(marks.begin(), marks.end(), 0);
    mark_by_pieces(text, ids, inside, marks);
  }

  RenderedChat take() { return std::move(chat_); }

 private:
  // Seen from the beginning of `span`. Spans are asked for in their order.
  std::vector<Span> targets_in(const Span& span) {
    const std::vector<Span>& all = marked_.targets;
    while (target_ < all.size() && all[target_].end <= span.begin) ++target_;
    std::vector<Span> inside;
    for (std::size_t i = target_; i < all.size() && all[i].begin < span.end; ++i)
      inside.push_back({std::max(all[i].begin, span.begin) - span.begin,
                        std::min(all[i].end, span.end) - span.begin});
    return inside;
  }

  // By the texts of the tokens, as far as the last target makes them matter. False where they are
  // not the run's, as after a change of normal form.
  bool mark_by_texts(std::string_view run, const std::vector<Token>& ids,
                     const std::vector<Span>& inside, std::span<std::uint8_t> marks) const {
    std::size_t from = 0, target = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      while (target < inside.size() && inside[target].end <= from) ++target;
      if (target == inside.size()) return true;
      if (inside[target].begin <= from && inside[target].end == run.size()) {
        std::fill(marks.begin() + std::ptrdiff_t(i), marks.end(), 1);
        return true;
      }
      std::string text = tokenizer_.decode({&ids[i], 1}, false);
      if (i == 0 && space_first_) {  // SentencePiece puts a space before a text
        if (!text.starts_with(' ')) return false;
        text.erase(0, 1);
      }
      if (!run.substr(from).starts_with(text)) return false;
      from += text.size();
      marks[i] = from > inside[target].begin;
    }
    return from == run.size();
  }

  // A place that no token crosses shows where the pieces around it have the run's ids.
  void mark_by_pieces(std::string_view run, const std::vector<Token>& ids,
                      const std::vector<Span>& inside, std::span<std::uint8_t> marks) const {
    std::vector<Token> seen;
    std::size_t at = 0;
    const auto tokens_before = [&](std::size_t place) {
      const std::string_view piece = run.substr(at, place - at);
      const std::vector<Token> more =
          at == 0 ? tokenizer_.encode(piece) : tokenizer_.encode_continuation(piece);
      seen.insert(seen.end(), more.begin(), more.end());
      at = place;
      return std::min(seen.size(), ids.size());
    };
    for (const Span& target : inside) {
      const std::size_t from = tokens_before(target.begin), to = tokens_before(target.end);
      std::fill(marks.begin() + std::ptrdiff_t(from), marks.begin() + std::ptrdiff_t(to), 1);
    }
    tokens_before(run.size());
    if (seen != ids) fail_unproven(marked_.place);
  }

  const MarkedText& marked_;
  const Tokenizer& tokenizer_;
  const bool space_first_;
  std::size_t target_ = 0;  // the first that is not passed
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

RenderedChat tokenize_marked(const MarkedText& marked, const Tokenizer& tokenizer) {
  Writer writer(marked, tokenizer);
  std::size_t at = 0;
  for (const Control& control : marked.controls) {
    writer.run({at, control.span.begin});
    writer.control(control);
    at = control.span.end;
  }
  writer.run({at, marked.text.size()});
  return writer.take();
}

RenderedChat tokenize_rendering(const PlacedRendering& rendering, std::span<const Message> messages,
                                const Tokenizer& tokenizer) {
  MarkedText marked{rendering.text, controls_of(rendering, tokenizer), {}, rendering.place};
  marked.targets = Targets(rendering, marked.controls).of(messages);
  RenderedChat chat = tokenize_marked(marked, tokenizer);
  // The ids are those of the whole text but for controls that somebody typed.
  if (chat.tokens != tokenizer.encode_with_special(rendering.text) &&
      std::none_of(rendering.spans.begin(), rendering.spans.end(), [&](const Span& span) {
        return has_controls(rendering.text.substr(span.begin, span.end - span.begin), tokenizer);
      }))
    fail_unproven(rendering.place);
  return chat;
}

}  // namespace dex
