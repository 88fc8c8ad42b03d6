#include "common/text/chat_spans.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/text/utf8.h"

namespace dex {
namespace {

constexpr std::size_t kDigits = 6;
constexpr char kLast = 'q';          // ends a mark
constexpr int kMostSteps = 1 << 20;  // of a search that contents of white space alone could stretch

// str.strip: Unicode's White_Space and the four separators before the space.
bool stripped_by_python(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string_view without_line_feeds(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// Every way a template may trim a part, the whole first.
std::vector<std::string_view> trimmed_forms(std::string_view part) {
  const char* const begin = part.data();
  const char* const end = begin + part.size();
  const std::string_view strip = stripped(part), feeds = without_line_feeds(part);
  std::vector<std::string_view> forms;
  for (const char* from : {begin, feeds.data(), strip.data()})
    for (const char* to : {end, feeds.data() + feeds.size(), strip.data() + strip.size()}) {
      const std::string_view form =
          from < to ? std::string_view(from, std::size_t(to - from)) : std::string_view();
      if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(form);
    }
  return forms;
}

class Search {
 public:
  Search(std::string_view text, const Frames& frames, const std::vector<std::string_view>& parts)
      : text_(text), frames_(frames), parts_(parts) {}

  std::optional<std::vector<Span>> run() {
    go_on(0, 0);
    if (found_ != 1 || steps_ > kMostSteps) return std::nullopt;
    return first_;
  }

 private:
  // Depth first without recursion where there is one way: conversations are long.
  void go_on(std::size_t index, std::size_t at) {
    const std::size_t kept = spans_.size();
    while (found_ < 2 && ++steps_ <= kMostSteps) {
      if (!text_.substr(at).starts_with(frames_.texts[index])) break;
      at += frames_.texts[index].size();
      if (index == frames_.parts.size()) {
        if (at == text_.size() && ++found_ == 1) first_ = spans_;
        break;
      }
      std::vector<std::string_view> fitting;
      for (const std::string_view form : trimmed_forms(parts_[frames_.parts[index]]))
        if (fits(form, index, at)) fitting.push_back(form);
      if (fitting.empty()) break;
      ++index;
      for (std::size_t i = 1; i < fitting.size(); ++i) {
        spans_.push_back({at, at + fitting[i].size()});
        go_on(index, at + fitting[i].size());
        spans_.pop_back();
      }
      spans_.push_back({at, at + fitting[0].size()});
      at += fitting[0].size();
    }
    spans_.resize(kept);
  }

  bool fits(std::string_view form, std::size_t index, std::size_t at) const {
    const std::string_view rest = text_.substr(at);
    return rest.starts_with(form) && rest.substr(form.size()).starts_with(frames_.texts[index + 1]);
  }

  const std::string_view text_;
  const Frames& frames_;
  const std::vector<std::string_view>& parts_;
  std::vector<Span> spans_, first_;
  int found_ = 0, steps_ = 0;
};

}  // namespace

std::string_view stripped(std::string_view text) {
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    if (!stripped_by_python(code.value)) break;
    text.remove_prefix(code.size);
  }
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
    if (!stripped_by_python(first_code_point(text.substr(last)).value)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

bool is_blank_text(std::string_view text) { return stripped(text).empty(); }

std::string mark_of(const std::string& stem, std::size_t number) {
  return fmt::format("{}{:0{}}{}", stem, number, kDigits, kLast);
}

Frames cut_at_marks(std::string_view rendering, const std::string& stem) {
  Frames frames;
  std::size_t from = 0;
  const std::size_t size = stem.size() + kDigits + 1;
  for (std::size_t at = 0; (at = rendering.find(stem, at)) != std::string_view::npos;) {
    const std::string_view mark = rendering.substr(at, size);
    const std::string_view digits = mark.substr(stem.size()).substr(0, kDigits);
    const bool whole = mark.size() == size && mark.back() == kLast &&
                       digits.find_first_not_of("0123456789") == std::string_view::npos;
    if (!whole) {
      at += stem.size();
      continue;
    }
    frames.texts.emplace_back(rendering.substr(from, at - from));
    frames.parts.push_back(std::stoul(std::string(digits)));
    from = at += size;
  }
  frames.texts.emplace_back(rendering.substr(from));
  return frames;
}

std::optional<std::vector<Span>> place_parts(std::string_view rendering, const Frames& frames,
                                             const std::vector<std::string_view>& parts) {
  for (const std::size_t part : frames.parts)
    if (part >= parts.size()) return std::nullopt;
  return Search(rendering, frames, parts).run();
}

}  // namespace dex
