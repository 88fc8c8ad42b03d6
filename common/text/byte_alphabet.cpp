#include "common/text/byte_alphabet.h"

#include <array>

#include "common/text/utf8.h"

namespace dex {
namespace {

struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<int, 512> byte_of{};

  Alphabet() {
    byte_of.fill(-1);
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const char32_t code = printable ? static_cast<char32_t>(byte) : next++;
      of_byte[byte] = code;
      byte_of[code] = byte;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const char32_t code = alphabet().of_byte[static_cast<unsigned char>(byte)];
    if (code < 0x80) {
      text += char(code);
    } else {
      text += char(0xC0 | code >> 6);
      text += char(0x80 | (code & 0x3F));
    }
  }
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    if (code.value >= 512 || alphabet().byte_of[code.value] < 0) return std::nullopt;
    bytes += char(alphabet().byte_of[code.value]);
    text.remove_prefix(code.size);
  }
  return bytes;
}

}  // namespace dex
