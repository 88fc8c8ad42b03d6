// The 256 characters by which byte-level vocabularies write bytes: printable Latin-1 stands for
// itself, the rest for U+0100 and on.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace dex {

std::string to_byte_alphabet(std::string_view bytes);
// None when the text has a character outside the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view valid_utf8);

}  // namespace dex
