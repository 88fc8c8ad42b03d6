// The regular expressions of a tokenizer.json, written for the engine of the reference (Oniguruma),
// as PCRE2 has to be given them to match the same.
#pragma once
#include <string>
#include <string_view>

namespace dex {

// A pattern to compile with PCRE2_UTF, PCRE2_UCP, PCRE2_MULTILINE and the newline LF. Classes of
// characters are those of unicode_tables.h. What the two engines read differently, or what is not
// known to be read alike, is an Error(usage) with the pattern and that part of it; `place` names
// the file.
std::string to_pcre2(std::string_view pattern, const std::string& place);

}  // namespace dex
