#include "common/text/utf8.h"

#include <cstdint>
#include <cstring>

#include "common/base/error.h"

namespace dex {
namespace {

enum class Form { whole, broken, cut };

struct Sequence {
  Form form;
  std::size_t size;  // bytes of the sequence, or of the start of one that is broken or cut
};

struct Lead {
  int following;
  unsigned char second_low, second_high;
};

Lead lead_of(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

Sequence first_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {Form::whole, 1};
  const Lead lead = lead_of(byte(0));
  if (lead.following == 0) return {Form::broken, 1};
  for (std::size_t i = 1; i <= std::size_t(lead.following); ++i) {
    if (i == text.size()) return {Form::cut, i};
    const unsigned char low = i == 1 ? lead.second_low : 0x80,
                        high = i == 1 ? lead.second_high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Form::broken, i};
  }
  return {Form::whole, std::size_t(lead.following) + 1};
}

std::size_t ascii_prefix(std::string_view text) {
  std::size_t at = 0;
  for (std::uint64_t eight; at + sizeof eight <= text.size(); at += sizeof eight) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if (eight & 0x8080808080808080u) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = ascii_prefix(text);
  while (at < text.size()) {
    const Sequence sequence = first_sequence(text.substr(at));
    if (sequence.form != Form::whole) break;
    at += sequence.size;
    at += ascii_prefix(text.substr(at));
  }
  return at;
}

void require_utf8(std::string_view text, std::string_view place) {
  const std::size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return;
  fail(ExitCode::usage, "{}: not valid UTF-8: byte 0x{:02x} at offset {} of {}", place,
       static_cast<unsigned char>(text[valid]), valid, text.size());
}

std::string take_utf8(std::string& held, bool last) {
  std::string text;
  std::string_view rest = held;
  while (!rest.empty()) {
    const std::size_t valid = valid_utf8_prefix(rest);
    text.append(rest.substr(0, valid));
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Sequence bad = first_sequence(rest);
    if (bad.form == Form::cut && !last) break;
    text.append("\xEF\xBF\xBD");
    rest.remove_prefix(bad.size);
  }
  held = std::string(rest);
  return text;
}

CodePoint first_code_point(std::string_view valid) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(valid[i]));
  };
  const auto tail = [&](std::size_t i) { return byte(i) & 0x3F; };
  if (byte(0) < 0x80) return {byte(0), 1};
  if (byte(0) < 0xE0) return {(byte(0) & 0x1F) << 6 | tail(1), 2};
  if (byte(0) < 0xF0) return {(byte(0) & 0x0F) << 12 | tail(1) << 6 | tail(2), 3};
  return {(byte(0) & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4};
}

}  // namespace dex
