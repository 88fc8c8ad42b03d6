#include "train/reports/event_file.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>

#include "common/base/file.h"
#include "tests/support/temp_dir.h"

using namespace dex;

namespace {

template <typename T>
T read_as(std::string_view bytes) {
  T value;
  REQUIRE(bytes.size() >= sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// CRC-32C bit by bit, as its definition has it.
std::uint32_t slow_crc(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const char byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool feed = ((static_cast<unsigned char>(byte) >> bit) ^ crc) & 1;
      crc = (crc >> 1) ^ (feed ? 0x82f63b78u : 0u);
    }
  return ~crc;
}

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = slow_crc(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// The data of each frame, its checksums compared.
std::vector<std::string> frames_of(std::string_view rest) {
  std::vector<std::string> frames;
  while (!rest.empty()) {
    const auto length = read_as<std::uint64_t>(rest);
    REQUIRE(rest.size() >= 16 + length);
    CHECK(read_as<std::uint32_t>(rest.substr(8)) == masked(rest.substr(0, 8)));
    CHECK(read_as<std::uint32_t>(rest.substr(12 + length)) == masked(rest.substr(12, length)));
    frames.emplace_back(rest.substr(12, length));
    rest.remove_prefix(16 + length);
  }
  return frames;
}

std::uint64_t take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    REQUIRE_FALSE(rest.empty());
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= std::uint64_t(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

// Field number -> values, numbers as their raw bytes.
std::multimap<int, std::string> fields_of(std::string_view rest) {
  std::multimap<int, std::string> fields;
  while (!rest.empty()) {
    const std::uint64_t key = take_varint(rest);
    std::size_t size = 0;
    switch (key & 7) {
      case 0: {
        const std::uint64_t value = take_varint(rest);
        fields.emplace(int(key >> 3),
                       std::string(reinterpret_cast<const char*>(&value), sizeof value));
        continue;
      }
      case 1:
        size = 8;
        break;
      case 2:
        size = take_varint(rest);
        break;
      case 5:
        size = 4;
        break;
      default:
        FAIL("wire type " << (key & 7));
    }
    REQUIRE(rest.size() >= size);
    fields.emplace(int(key >> 3), std::string(rest.substr(0, size)));
    rest.remove_prefix(size);
  }
  return fields;
}

const std::string& only(const std::multimap<int, std::string>& fields, int number) {
  REQUIRE(fields.count(number) == 1);
  return fields.find(number)->second;
}

}  // namespace

TEST_CASE("the checksum is CRC-32C") {
  CHECK(crc32c("123456789") == 0xe3069283u);            // the check value of its catalogue entry
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);  // RFC 3720, B.4
  CHECK(crc32c("") == 0);
}

TEST_CASE("an event file holds its version, where it goes on, and each scalar with its step") {
  const test::TempDir dir;
  EventFile file(dir / "tb", 300);
  file.write(301, {{"loss", 2.5}, {"agreement/10", 0.125}});
  file.write(302, {});
  file.write(1'000'000, {{"loss", -1}});
  CHECK(file.path().filename().string().find("tfevents") != std::string::npos);
  const auto frames = frames_of(read_file(file.path()));
  REQUIRE(frames.size() == 4);  // nothing was said of step 302

  CHECK(only(fields_of(frames[0]), 3) == "brain.Event:2");
  CHECK(read_as<double>(only(fields_of(frames[0]), 1)) > 1.7e9);  // seconds since 1970
  const auto start = fields_of(frames[1]);
  // older files' steps from there on do not count
  CHECK(read_as<std::uint64_t>(only(start, 2)) == 301);
  CHECK(read_as<std::uint64_t>(only(fields_of(only(start, 7)), 1)) == 1);

  const auto event = fields_of(frames[2]);
  CHECK(read_as<std::uint64_t>(only(event, 2)) == 301);
  std::map<std::string, float> scalars;
  const auto values = fields_of(only(event, 5));
  for (const auto& [number, value] : values) {
    CHECK(number == 1);
    const auto parts = fields_of(value);
    scalars[only(parts, 1)] = read_as<float>(only(parts, 2));
  }
  CHECK(scalars == std::map<std::string, float>{{"loss", 2.5f}, {"agreement/10", 0.125f}});
  CHECK(read_as<std::uint64_t>(only(fields_of(frames[3]), 2)) == 1'000'000);
}

TEST_CASE("a run that goes on writes another event file behind the first") {
  const test::TempDir dir;
  const EventFile first(dir / "tb", 0), second(dir / "tb", 5);
  CHECK(first.path().filename() < second.path().filename());
}
