// Altered files: whatever the bytes say, opening one ends in tensors that lie inside the file or in
// one dex::Error, and never asks for more memory than the file's size explains.
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "common/base/file.h"
#include "common/base/safetensors_header.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace {

using dex::StoredType;

const std::vector<float> kFloats(8, 1.25f);

std::string small_file() {
  const auto bytes = std::as_bytes(std::span(kFloats));
  const std::map<std::string, dex::StoredTensor> tensors{
      {"depth.10.up.weight", {StoredType::f32, {2, 2}, bytes.first(16)}},
      {"depth.10.alpha", {StoredType::f32, {}, bytes.first(4)}},
      {"ids", {StoredType::i64, {1}, bytes.first(8)}},
      {"mask", {StoredType::u8, {0, 3}, {}}}};
  std::string file = dex::make_safetensors_header(tensors, {{"format", "pt"}, {"digest", "00ff"}});
  for (const auto& [name, tensor] : tensors)
    file.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  return file;
}

enum class Outcome { read, refused };

// Reads altered bytes and checks everything that a reader may rely on afterwards.
Outcome check(const std::string& bytes) {
  dex::SafetensorsHeader header;
  try {
    header = dex::read_safetensors_header(std::as_bytes(std::span(bytes)), "altered");
  } catch (const dex::Error& error) {
    REQUIRE(error.code() == dex::ExitCode::io);
    REQUIRE(std::string(error.what()).starts_with("altered"));
    REQUIRE(std::string_view(error.what()).size() < 1000);
    return Outcome::refused;
  }
  for (const auto& [name, tensor] : header.tensors) {
    const auto* begin = reinterpret_cast<const char*>(tensor.bytes.data());
    REQUIRE(begin >= bytes.data());
    REQUIRE(begin + tensor.bytes.size() <= bytes.data() + bytes.size());
    std::size_t size = dex::size_of(tensor.type);
    for (std::int64_t extent : tensor.shape) size *= std::size_t(extent);
    REQUIRE(size == tensor.bytes.size());
  }
  return Outcome::read;
}

// Any allocation over the limit throws bad_alloc, which no test here expects.
class MemoryLimit {
 public:
  explicit MemoryLimit(rlim_t more) {
    getrlimit(RLIMIT_AS, &previous_);
    rlimit limit = previous_;
    limit.rlim_cur = mapped_bytes() + more;
    setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { setrlimit(RLIMIT_AS, &previous_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  static rlim_t mapped_bytes() {
    unsigned long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * 4096;
  }
  rlimit previous_{};
};

// The address sanitizer reserves address space by the terabyte.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kLimitMemory = false;
#else
constexpr bool kLimitMemory = true;
#endif

}  // namespace

TEST_CASE("altering any one byte of a small file never breaks the reader") {
  const std::string whole = small_file();
  REQUIRE(check(whole) == Outcome::read);
  int refused = 0, tried = 0;
  for (std::size_t place = 0; place < whole.size(); ++place) {
    for (const char value : std::string("\0\1\",09[]{}\\-e\x7f\x80\xff", 16)) {
      std::string altered = whole;
      altered[place] = value;
      refused += check(altered) == Outcome::refused;
      ++tried;
    }
  }
  INFO(refused << " of " << tried << " refused");
  CHECK(tried > 4000);
  CHECK(refused > tried / 2);  // most of the file is header, most of the header is syntax
}

TEST_CASE(
    "altering the claimed length never breaks the reader, nor does it allocate what is claimed") {
  const std::string whole = small_file();
  std::uint64_t good = 0;
  std::memcpy(&good, whole.data(), 8);
  std::vector<std::uint64_t> lengths{~0ULL,      ~0ULL - 7,   1ULL << 63,   (1ULL << 63) - 1,
                                     1ULL << 40, 100'000'001, whole.size(), whole.size() - 8};
  for (std::uint64_t length = 0; length < whole.size() + 2; ++length) lengths.push_back(length);
  const MemoryLimit limit(kLimitMemory ? rlim_t{64} << 20 : RLIM_INFINITY / 2);
  for (const std::uint64_t length : lengths) {
    std::string altered = whole;
    std::memcpy(altered.data(), &length, 8);
    CAPTURE(length);
    // One of the header's padding spaces more or less changes where the data starts, so only the
    // true length fits.
    CHECK(check(altered) == (length == good ? Outcome::read : Outcome::refused));
  }
}

TEST_CASE("random alterations, cuts, insertions and repetitions never break the reader") {
  const std::string whole = small_file();
  const std::size_t header_end = whole.size() - 28;
  std::mt19937 random(20240);
  const auto below = [&](std::size_t bound) { return random() % bound; };
  const MemoryLimit limit(kLimitMemory ? rlim_t{64} << 20 : RLIM_INFINITY / 2);
  int refused = 0;
  constexpr int kTrials = 40000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::string altered = whole;
    for (std::size_t change = 0, changes = 1 + below(4); change < changes; ++change) {
      // Half of the changes keep the first eight bytes, so that they reach the JSON and what it
      // says.
      const std::size_t first = below(2) ? 8 : 0,
                        place = first + below(std::max(altered.size(), first + 1) - first);
      if (place >= altered.size()) continue;
      switch (below(6)) {
        case 0:
          altered[place] = char(random());
          break;
        case 1:
          altered[place] = char(altered[place] ^ (1 << below(8)));
          break;
        case 2:
          altered[place] = "0123456789,:[]{}\"-+.eE"[below(22)];
          break;
        case 3:
          altered.erase(place, 1 + below(8));
          break;
        case 4:
          altered.insert(place, altered.substr(below(altered.size()), below(40)));
          break;
        default:
          altered.resize(place);
          break;
      }
    }
    // A third of the time the length is made to fit again, or most alterations would stop at it.
    if (below(3) == 0 && altered.size() > header_end) {
      const std::uint64_t length = header_end - 8 + altered.size() - whole.size();
      std::memcpy(altered.data(), &length, 8);
    }
    refused += check(altered) == Outcome::refused;
  }
  CHECK(refused > kTrials / 2);
  CHECK(refused < kTrials);
}

TEST_CASE("sizes at the edges of 64 bits never wrap into a fit") {
  const std::vector<std::string> numbers{"0",
                                         "1",
                                         "3",
                                         "4",
                                         "16",
                                         "4294967296",
                                         "2147483648",
                                         "4611686018427387904",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "18446744073709551612",
                                         "18446744073709551615",
                                         "18446744073709551616"};
  int read = 0;
  for (const auto& a : numbers)
    for (const auto& b : numbers)
      for (const auto& begin : numbers)
        for (const auto& end : numbers) {
          std::string header =
              fmt::format(R"({{"t":{{"dtype":"F32","shape":[{},{}],"data_offsets":[{},{}]}}}})", a,
                          b, begin, end);
          const std::uint64_t length = header.size();
          std::string file(8, '\0');
          std::memcpy(file.data(), &length, 8);
          file += header + std::string(16, '\1');
          read += check(file) == Outcome::read;
        }
  CHECK(read == 2);  // 16 bytes from 0 to 16, as [1, 4] and as [4, 1]
}

TEST_CASE(
    "a large header of nothing but nesting, numbers or names is read or refused in bounded "
    "memory") {
  const auto file_of = [](const std::string& header) {
    const std::uint64_t length = header.size();
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    return file + header;
  };
  constexpr std::size_t kSize = 1 << 20;
  std::string names = "{", numbers = "{\"a\":[";
  for (int i = 0; names.size() < kSize; ++i) names += fmt::format("\"{}\":0,", i);
  while (numbers.size() < kSize) numbers += "1,";
  const std::vector<std::string> files{file_of("{\"a\":" + std::string(kSize, '[')),
                                       file_of("{" + std::string(kSize, ' ')),
                                       file_of("{\"" + std::string(kSize, 'n') + "\":0}"),
                                       file_of(names + "\"x\":0}"),
                                       file_of(numbers + "1]}"),
                                       file_of(numbers)};
  const MemoryLimit limit(kLimitMemory ? rlim_t{256} << 20 : RLIM_INFINITY / 2);
  for (const std::string& file : files) CHECK(check(file) == Outcome::refused);
}

TEST_CASE("every cut of a larger file is refused without reading past its end") {
  const dex::test::TempDir dir;
  std::string whole = small_file();
  for (std::size_t size = 0; size < whole.size(); ++size)
    REQUIRE(check(whole.substr(0, size)) == Outcome::refused);
  for (std::size_t more = 1; more < 70; ++more)
    REQUIRE(check(whole + std::string(more, '\0')) == Outcome::refused);
}
