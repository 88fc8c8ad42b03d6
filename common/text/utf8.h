// Checks and mends UTF-8 (Unicode 15, table 3-7: no surrogates, no overlong forms).
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace dex {

// Bytes of the longest prefix that consists of whole, valid sequences.
std::size_t valid_utf8_prefix(std::string_view text);

// Throws Error(usage) with `place` and the offset of the first bad byte.
void require_utf8(std::string_view text, std::string_view place);

// Takes from `held` all text that is decided, one U+FFFD for each ill-formed part (the longest
// start of a sequence). What may yet become a character stays in `held`, unless `last` is set.
std::string take_utf8(std::string& held, bool last);

// The code point at the start of valid, non-empty text, and its length in bytes.
struct CodePoint {
  char32_t value;
  std::size_t size;
};
CodePoint first_code_point(std::string_view valid);

}  // namespace dex
