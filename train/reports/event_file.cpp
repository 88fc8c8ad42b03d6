#include "train/reports/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "common/base/error.h"
#include "common/base/file.h"

namespace dex {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
constexpr int kSessionStart = 1;  // SessionLog.status

constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82f63b78u : 0);
  }
  return table;
}();

template <typename Int>
std::string little_endian(Int value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) bytes += char(value >> 8 * i & 0xff);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += char(0x80 | (value & 0x7f));
  return bytes + char(value);
}

std::string key(int field, WireType type) { return varint(std::uint64_t(field << 3 | type)); }
std::string field(int number, std::uint64_t value) { return key(number, kVarint) + varint(value); }
std::string field(int number, double value) {
  return key(number, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string field(int number, float value) {
  return key(number, kFixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}
std::string field(int number, const std::string& bytes) {
  return key(number, kBytes) + varint(bytes.size()) + bytes;
}

std::string event_head(std::int64_t step) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return field(1, std::chrono::duration<double>(now).count()) + field(2, std::uint64_t(step));
}

std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::string framed(std::string_view data) {
  const std::string length = little_endian(std::uint64_t(data.size()));
  return length + little_endian(masked_crc(length)) + std::string(data) +
         little_endian(masked_crc(data));
}

EventFile::EventFile(const std::filesystem::path& dir, std::int64_t step) {
  make_directory(dir);
  // Readers know event files by "tfevents" and take them in the order of their names.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  for (int next = 0; path_.empty() || std::filesystem::exists(path_); ++next)
    path_ = dir / fmt::format("events.out.tfevents.{:010}.{:03}.dex.{}", seconds, next, getpid());
  file_.open(path_, std::ios::binary);
  append(event_head(0) + field(3, std::string("brain.Event:2")));
  append(event_head(step + 1) + field(7, field(1, std::uint64_t{kSessionStart})));
}

void EventFile::write(std::int64_t step, const Scalars& scalars) {
  if (scalars.empty()) return;
  std::string summary;
  for (const auto& [tag, value] : scalars)
    summary += field(1, field(1, tag) + field(2, float(value)));
  append(event_head(step) + field(5, summary));
}

void EventFile::append(const std::string& event) {
  file_ << framed(event) << std::flush;
  require(file_.good(), ExitCode::io, "{}: cannot be written: {}", path_.string(),
          std::strerror(errno));
}

}  // namespace dex
