#include "common/text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/text/late_marks.h"
#include "common/text/utf8.h"

namespace dex {
namespace {

// Nothing below U+0300 changes under NFC, and nothing below it combines with what stands before it.
constexpr unsigned char kFirstLead = 0xCC;

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }
bool may_change(char byte) { return static_cast<unsigned char>(byte) >= kFirstLead; }

bool is_late(char32_t code) {
  const auto* range = std::lower_bound(std::begin(kLateMarks), std::end(kLateMarks), code,
                                       [](const CodeRange& r, char32_t c) { return r.last < c; });
  return range != std::end(kLateMarks) && code >= range->first;
}

// Marks in canonical order, which NFC gives them anyway. utf8proc orders by swapping neighbours,
// quadratic in the length of a run; what comes ordered costs it nothing.
std::string order_marks(std::string_view text) {
  std::string ordered;
  std::vector<std::pair<int, std::string_view>> run;  // combining class and bytes
  const auto flush = [&] {
    std::stable_sort(run.begin(), run.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [mark_class, bytes] : run) ordered += bytes;
    run.clear();
  };
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    const int mark_class =
        utf8proc_get_property(static_cast<utf8proc_int32_t>(code.value))->combining_class;
    if (mark_class == 0) flush();
    run.emplace_back(mark_class, text.substr(0, code.size));
    if (mark_class == 0) flush();
    text.remove_prefix(code.size);
  }
  flush();
  return ordered;
}

void append_normal(std::string_view part, std::string& made) {
  if (part.empty()) return;
  constexpr std::size_t kShort = 64;
  const std::string ordered = part.size() > kShort ? order_marks(part) : "";
  const std::string_view text = ordered.empty() ? part : ordered;
  utf8proc_uint8_t* bytes = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &bytes,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(bytes, &std::free);
  require(size >= 0, ExitCode::bug, "NFC: {}", utf8proc_errmsg(size));
  made.append(reinterpret_cast<const char*>(bytes), std::size_t(size));
}

// A late mark is nothing to the reference: it neither moves nor lets anything combine across it.
void append_chunk(std::string_view chunk, std::string& made) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < chunk.size();) {
    const CodePoint code = first_code_point(chunk.substr(at));
    if (is_late(code.value)) {
      append_normal(chunk.substr(begin, at - begin), made);
      made.append(chunk.substr(at, code.size));
      begin = at + code.size;
    }
    at += code.size;
  }
  append_normal(chunk.substr(begin), made);
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& made) {
  made.clear();
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!may_change(text[at])) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    // the base that marks may join
    if (begin > done) do
        --begin;
      while (begin > done && is_continuation(text[begin]));
    while (at < text.size() && (is_continuation(text[at]) || may_change(text[at]))) ++at;
    made.append(text.substr(done, begin - done));
    append_chunk(text.substr(begin, at - begin), made);
    done = at;
  }
  if (done == 0) return text;
  made.append(text.substr(done));
  return made;
}

}  // namespace dex
