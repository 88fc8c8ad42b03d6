#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/text/pre_tokenizer.h"

#include <fmt/format.h>
#include <pcre2.h>
#include <utf8proc.h>

#include <cstdint>

#include "common/base/error.h"
#include "common/text/unicode_additions.h"
#include "common/text/utf8.h"

namespace dex {

const char* const kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class PreTokenizer::Rule {
 public:
  virtual ~Rule() = default;
  virtual void split(std::string_view text, std::vector<std::string_view>& words) const = 0;
};

namespace {

template <std::size_t N>
std::string class_items(const CodeRange (&ranges)[N]) {
  std::string items;
  for (const CodeRange& range : ranges)
    items += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", std::uint32_t(range.first),
                         std::uint32_t(range.last));
  return items;
}

// What an escape means to the reference's regex engine, as items of a PCRE2 character class.
// PCRE2's \s would take U+180E as well, and its letters and numbers are those of an older Unicode.
// ASCII first: it is found in a bitmap.
std::string meaning_of(std::string_view escape) {
  if (escape == "\\s" || escape == "\\S") return R"(\t-\r \x{85}\p{Z})";
  if (escape == "\\p{L}") return R"(A-Za-z\p{L})" + class_items(kAddedLetters);
  if (escape == "\\p{N}") return R"(0-9\p{N})" + class_items(kAddedNumbers);
  return "";
}

std::string_view escape_at(std::string_view pattern, std::size_t at) {
  for (const std::string_view known : {"\\s", "\\S", "\\p{L}", "\\p{N}"})
    if (pattern.substr(at).starts_with(known)) return known;
  return pattern.substr(at, 2);
}

std::string to_pcre2(std::string_view pattern, const std::string& place) {
  std::string result;
  bool in_class = false;
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '\\') {
      if (pattern[at] == '[') in_class = true;
      if (pattern[at] == ']') in_class = false;
      result += pattern[at++];
      continue;
    }
    const std::string_view escape = escape_at(pattern, at);
    const std::string items = meaning_of(escape);
    require(!(in_class && escape == "\\S"), ExitCode::usage,
            "{}: the Split pattern {} has \\S inside a class; supported is \\S outside of classes",
            place, pattern);
    if (items.empty())
      result += escape;
    else if (in_class)
      result += items;
    else
      result += (escape == "\\S" ? "[^" : "[") + items + "]";
    at += escape.size();
  }
  return result;
}

// What PCRE2 writes to while it matches; one for each thread.
class MatchState {
 public:
  MatchState()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kStackStart, kStackMost, nullptr)) {
    // long runs are legal text; the patterns are linear in them
    pcre2_set_match_limit(context, UINT32_MAX);
    pcre2_jit_stack_assign(context, nullptr, stack_);
  }
  ~MatchState() {
    pcre2_jit_stack_free(stack_);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;

 private:
  static constexpr std::size_t kStackStart = 32 << 10, kStackMost = 64 << 20;
  pcre2_jit_stack* stack_;
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

class RegexRule : public PreTokenizer::Rule {
 public:
  RegexRule(const std::string& pattern, const std::string& place) {
    const std::string translated = to_pcre2(pattern, place);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    require(code_, ExitCode::usage, "{}: the Split pattern {} cannot be used: {}", place, pattern,
            message_of(error));
    // where the system forbids it, pcre2_match interprets instead
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);
  }
  ~RegexRule() override { pcre2_code_free(code_); }

  void split(std::string_view text, std::vector<std::string_view>& words) const override {
    static thread_local MatchState state;
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state.data);
    std::size_t done = 0;
    for (std::size_t from = 0; from < text.size();) {
      const int rc = pcre2_match(code_, subject, text.size(), from, PCRE2_NO_UTF_CHECK, state.data,
                                 state.context);
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) fail(ExitCode::bug, "splitting text into words: {}", message_of(rc));
      if (found[1] == found[0]) {  // an empty match makes no word
        if (found[0] == text.size()) break;
        from = found[0] + first_code_point(text.substr(found[0])).size;
        continue;
      }
      if (found[0] > done) words.push_back(text.substr(done, found[0] - done));
      words.push_back(text.substr(found[0], found[1] - found[0]));
      from = done = found[1];
    }
    if (done < text.size()) words.push_back(text.substr(done));
  }

 private:
  pcre2_code* code_;
};

bool is_number(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  const auto within = [code](const CodeRange& range) {
    return code >= range.first && code <= range.last;
  };
  for (const CodeRange& range : kAddedNumbers)
    if (within(range)) return true;
  for (const CodeRange& range : kAddedDigits)
    if (within(range)) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

class DigitsRule : public PreTokenizer::Rule {
 public:
  explicit DigitsRule(bool each) : each_(each) {}

  void split(std::string_view text, std::vector<std::string_view>& words) const override {
    std::size_t begin = 0;
    bool in_number = false;
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint code = first_code_point(text.substr(at));
      const bool number = is_number(code.value);
      if (at > begin && (number != in_number || (number && each_))) {
        words.push_back(text.substr(begin, at - begin));
        begin = at;
      }
      in_number = number;
      at += code.size;
    }
    if (begin < text.size()) words.push_back(text.substr(begin));
  }

 private:
  bool each_;
};

}  // namespace

PreTokenizer::PreTokenizer(const std::vector<SplitRule>& rules, const std::string& place) {
  for (const SplitRule& rule : rules) {
    if (rule.kind == SplitRule::Kind::regex)
      rules_.push_back(std::make_unique<RegexRule>(rule.pattern, place));
    else
      rules_.push_back(std::make_unique<DigitsRule>(rule.kind == SplitRule::Kind::each_digit));
  }
}

PreTokenizer::~PreTokenizer() = default;

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& words) const {
  if (text.empty()) return;
  std::vector<std::string_view> pieces{text}, next;
  for (const auto& rule : rules_) {
    next.clear();
    for (const std::string_view piece : pieces) rule->split(piece, next);
    pieces.swap(next);
  }
  words.insert(words.end(), pieces.begin(), pieces.end());
}

}  // namespace dex
