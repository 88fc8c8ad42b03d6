#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/text/pre_tokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "common/base/error.h"
#include "common/text/split_pattern.h"
#include "common/text/unicode_tables.h"
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
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context);
    pcre2_compile_context_free(context);
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
  const auto range = std::lower_bound(kDigitsNumbers.begin(), kDigitsNumbers.end(), code,
                                      [](const CodeRange& r, char32_t c) { return r.last < c; });
  return range != kDigitsNumbers.end() && code >= range->first;
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
