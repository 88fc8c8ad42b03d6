#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/text/split_pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "common/base/error.h"
#include "common/text/unicode_tables.h"
#include "common/text/utf8.h"

namespace dex {
namespace {

using Codes = std::vector<CodeRange>;  // ascending, apart

constexpr char32_t kEnd = 0x110000;
constexpr std::array<std::string_view, 30> kCategoryNames = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

// Of a property named by one letter or two; empty when there is none of that name.
Codes codes_of(std::string_view name) {
  Codes codes;
  for (std::size_t i = 0; i < kCategoryRuns.size(); ++i) {
    const auto category = std::size_t(kCategoryRuns[i].category);
    if (!kCategoryNames[category].starts_with(name)) continue;
    const char32_t first = kCategoryRuns[i].first;
    const char32_t last = (i + 1 < kCategoryRuns.size() ? kCategoryRuns[i + 1].first : kEnd) - 1;
    if (!codes.empty() && codes.back().last + 1 == first)
      codes.back().last = last;
    else
      codes.push_back({first, last});
  }
  return codes;
}

void append_utf8(char32_t code, std::string& text) {
  if (code < 0x80) {
    text += char(code);
    return;
  }
  const int tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr unsigned char kLead[] = {0, 0xC0, 0xE0, 0xF0};
  text += char(kLead[tail] | code >> (6 * tail));
  for (int i = tail - 1; i >= 0; --i) text += char(0x80 | (code >> (6 * i) & 0x3F));
}

constexpr bool is_surrogate(char32_t code) { return code >= 0xD800 && code <= 0xDFFF; }

// What PCRE2's own tables say, from matching every character there is.
Codes codes_of_pcre2(std::string_view name) {
  std::string all;
  for (char32_t code = 0; code < kEnd; ++code)
    if (!is_surrogate(code)) append_utf8(code, all);
  const std::string pattern = fmt::format("\\p{{{}}}+", name);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  require(code, ExitCode::bug, "PCRE2 does not know the property {}", name);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data);
  Codes codes;
  for (std::size_t from = 0; pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(all.data()), all.size(),
                                         from, PCRE2_NO_UTF_CHECK, data, nullptr) > 0;
       from = found[1]) {
    std::size_t last = found[1] - 1;
    while ((static_cast<unsigned char>(all[last]) & 0xC0) == 0x80) --last;
    codes.push_back({first_code_point(std::string_view(all).substr(found[0])).value,
                     first_code_point(std::string_view(all).substr(last)).value});
  }
  pcre2_match_data_free(data);
  pcre2_code_free(code);
  return codes;
}

// Those of `a` that are not in `b`.
Codes without(const Codes& a, const Codes& b) {
  Codes rest;
  std::size_t at = 0;
  for (CodeRange range : a) {
    while (at < b.size() && b[at].last < range.first) ++at;
    for (std::size_t i = at; i < b.size() && b[i].first <= range.last; ++i) {
      if (b[i].first > range.first) rest.push_back({range.first, b[i].first - 1});
      range.first = b[i].last + 1;
    }
    if (range.first <= range.last) rest.push_back(range);
  }
  return rest;
}

Codes without_surrogates(const Codes& codes) { return without(codes, {{0xD800, 0xDFFF}}); }

std::string written(const Codes& codes) {
  std::string items;
  for (const CodeRange& range : without_surrogates(codes))
    items += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", std::uint32_t(range.first),
                         std::uint32_t(range.last));
  return items;
}

// Items of a class that are the property's characters: PCRE2's own property, which is quick, and
// what its tables lack; all of them one by one where its tables have too many.
std::string make_property_items(std::string_view name) {
  const Codes wanted = without_surrogates(codes_of(name)), own = codes_of_pcre2(name);
  if (wanted.empty()) return "";
  if (!without(own, wanted).empty()) return written(wanted);
  // ASCII first: it is found in a bitmap
  const std::string ascii = name == "L" ? "A-Za-z" : name == "N" ? "0-9" : "";
  return ascii + fmt::format("\\p{{{}}}", name) + written(without(wanted, own));
}

std::string property_items(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  return known[name] = make_property_items(name);
}

bool is_category(std::string_view name) {
  for (const std::string_view known : kCategoryNames)
    if (!name.empty() && (name == known || name == known.substr(0, 1))) return name != "Cs";
  return false;
}

// Reads a pattern from left to right; every construct is either known to mean the same to both
// engines, or rewritten, or refused.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& place)
      : pattern_(pattern), place_(place) {}

  std::string translate() {
    while (at_ < pattern_.size()) {
      switch (pattern_[at_]) {
        case '\\':
          escape(false);
          break;
        case '[':
          character_class();
          break;
        case '(':
          open_group();
          break;
        case ')':
          if (caseless_.size() > 1) caseless_.pop_back();
          copy(1);
          break;
        case '}':
          if (rest().starts_with("}+")) refuse(2);  // possessive to one engine only
          copy(1);
          break;
        case '{':
          if (rest().starts_with("{,")) refuse(2);
          copy(1);
          break;
        default:
          copy(1);
      }
    }
    return std::move(result_);
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }

  void copy(std::size_t size) {
    result_ += rest().substr(0, size);
    at_ += std::min(size, pattern_.size() - at_);
  }

  [[noreturn]] void refuse(std::size_t size,
                           std::string_view why = "which is not supported") const {
    fail(ExitCode::usage, "{}: the Split pattern {} has {} at byte {}, {}", place_, pattern_,
         rest().substr(0, size), at_, why);
  }

  void open_group() {
    bool caseless = caseless_.back();
    for (const std::string_view known : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"})
      if (rest().starts_with(known)) {
        caseless_.push_back(caseless || known == "(?i:");
        return copy(known.size());
      }
    if (rest().starts_with("(?i)")) {
      caseless_.back() = true;
      return copy(4);
    }
    if (rest().starts_with("(?") || rest().starts_with("(*")) refuse(4);
    caseless_.push_back(caseless);
    copy(1);
  }

  void character_class() {
    copy(rest().starts_with("[^") ? 2 : 1);
    if (rest().starts_with("]")) refuse(1, "in a class of characters; supported is \\]");
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '[') refuse(1, "in a class of characters; supported is \\[");
      if (rest().starts_with("&&")) refuse(2, "in a class of characters");
      if (pattern_[at_] == '\\')
        escape(true);
      else
        copy(1);
    }
    copy(1);
  }

  void escape(bool in_class) {
    const char kind = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (kind) {
      case 's':
        return add_class(2, R"(\t-\r \x{85}\p{Z})", false, in_class);  // PCRE2's has U+180E, too
      case 'S':
        return add_class(2, R"(\t-\r \x{85}\p{Z})", true, in_class);
      case 'd':
      case 'D':
        return add_class(2, property_items("Nd"), kind == 'D', in_class);
      case 'p':
      case 'P':
        return property(in_class);
      case 'v':
        result_ += "\\x{b}";
        at_ += 2;
        return;
      case 'x':
      case 'u':
        return code_point();
      default: {
        const bool letter = (kind >= 'a' && kind <= 'z') || (kind >= 'A' && kind <= 'Z');
        if (letter && std::string_view("rntfae").find(kind) == std::string_view::npos) refuse(2);
        if (kind == '\0' || (kind >= '0' && kind <= '9')) refuse(2);
        copy(2);
      }
    }
  }

  void add_class(std::size_t size, const std::string& items, bool negated, bool in_class) {
    if (in_class && negated) refuse(size, "in a class; supported is that outside of classes");
    if (in_class)
      result_ += items;
    else
      result_ += (negated ? "[^" : "[") + items + "]";
    at_ += size;
  }

  void property(bool in_class) {
    const std::size_t end = rest().find('}');
    const bool braced = at_ + 2 < pattern_.size() && pattern_[at_ + 2] == '{';
    if (!braced || end == std::string_view::npos) refuse(2, "wanted a name in braces behind it");
    bool negated = pattern_[at_ + 1] == 'P';
    std::string_view name = rest().substr(3, end - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (!is_category(name))
      refuse(end + 1, "supported are general categories such as \\p{L} and \\p{Lu}");
    if (caseless_.back()) refuse(end + 1, "where case is ignored");
    add_class(end + 1, property_items(std::string(name)), negated, in_class);
  }

  // \xHH of ASCII, \x{H...} and \uHHHH, which PCRE2 does not know.
  void code_point() {
    const bool braced = rest().starts_with("\\x{");
    const std::size_t begin = braced ? 3 : 2, most = braced ? 6 : pattern_[at_ + 1] == 'u' ? 4 : 2;
    std::size_t end = begin;
    const auto is_digit = [](char c) {
      return std::string_view("0123456789abcdefABCDEF").find(c) != std::string_view::npos;
    };
    while (end < rest().size() && end - begin < most && is_digit(rest()[end])) ++end;
    const bool whole =
        braced ? end > begin && rest().substr(end).starts_with('}') : end - begin == most;
    if (!whole) refuse(end, "wanted hexadecimal digits behind it");
    const std::string digits(rest().substr(begin, end - begin));
    if (most == 2 && digits[0] > '7') refuse(end, "a byte that is no character");
    result_ += "\\x{" + digits + "}";
    at_ += end + (braced ? 1 : 0);
  }

  std::string_view pattern_;
  const std::string& place_;
  std::size_t at_ = 0;
  std::string result_;
  std::vector<bool> caseless_{false};  // of each open group
};

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& place) {
  return Translator(pattern, place).translate();
}

}  // namespace dex
