#include "common/base/h5.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>

#include "common/base/error.h"
#include "common/base/file.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using dex::test::TempDir;

namespace {

template <typename T>
std::span<const T> view(const std::vector<T>& values) {
  return values;
}

const std::vector<std::uint32_t> kIds = {0, 1, 255, 256, 65535, 65536, 151935, 0xffffffffu};

void write_small(const std::filesystem::path& path) {
  H5Writer file(path);
  file.append("tokens", view(kIds));
  file.attribute("digest", std::string("0123456789abcdef"));
  file.attribute("vocabulary", std::int64_t{151936});
  file.close();
}

// What a reader sees of the small file, or nothing when it is refused.
std::optional<std::vector<std::uint32_t>> read_small(const std::filesystem::path& path) {
  try {
    const H5Reader file(path);
    if (file.names() != std::vector<std::string>{"tokens"} ||
        file.text_attribute("digest") != "0123456789abcdef" ||
        file.int_attribute("vocabulary") != 151936)
      return std::vector<std::uint32_t>{};
    return file.read_u32("tokens", 0, file.shape("tokens").at(0));
  } catch (const Error& error) {
    REQUIRE(error.code() == ExitCode::io);
    return std::nullopt;
  }
}

// Under a name of its own: some file systems flush a file that is overwritten.
std::filesystem::path fresh_file(const TempDir& dir, const std::string& bytes) {
  static int number = 0;
  std::filesystem::remove(dir / ("file" + std::to_string(number)));
  return dir.write("file" + std::to_string(++number), bytes);
}

ExitCode code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::done;
}

}  // namespace

TEST_CASE("appended pieces, whole arrays and attributes come back as written") {
  const TempDir dir;
  std::vector<std::uint64_t> offsets(40000);
  std::iota(offsets.begin(), offsets.end(), std::uint64_t{1} << 40);
  const std::vector<std::int32_t> table = {1, -2, 3, -4, 5, -6};
  const std::vector<float> floats(30000, 0.5f);
  {
    H5Writer file(dir / "all.h5");
    file.append("offsets", view(offsets).first(3));
    file.append("offsets", view(offsets).subspan(3, 0));
    file.append("offsets", view(offsets).subspan(3));
    file.append("marks", view(std::vector<std::uint8_t>{1, 0, 255}));
    file.append("empty", std::span<const std::uint32_t>{});
    file.write("table", table, {1, 2, 3});
    file.write("floats", floats, {3, 10000});
    file.write("no_rows", std::span<const float>{}, {0, 5});
    file.attribute("text", std::string("Grüße"));
    file.attribute("nothing", std::string());
    file.attribute("number", std::int64_t{-7});
    file.close();
  }
  const H5Reader file(dir / "all.h5");
  CHECK(file.names() ==
        std::vector<std::string>{"empty", "floats", "marks", "no_rows", "offsets", "table"});
  CHECK(file.read_u64("offsets", 0, 40000) == offsets);
  CHECK(file.read_u64("offsets", 16383, 2) ==
        std::vector<std::uint64_t>(offsets.begin() + 16383, offsets.begin() + 16385));
  CHECK(file.read_u8("marks", 0, 3) == std::vector<std::uint8_t>{1, 0, 255});
  CHECK(file.read_u32("empty", 0, 0).empty());
  CHECK(file.shape("table") == std::vector<std::uint64_t>{1, 2, 3});
  CHECK(file.read_i32("table") == table);
  CHECK(file.shape("floats") == std::vector<std::uint64_t>{3, 10000});
  CHECK(file.read_f32("floats") == floats);
  CHECK(file.shape("no_rows") == std::vector<std::uint64_t>{0, 5});
  CHECK(file.text_attribute("text") == "Grüße");
  CHECK(file.text_attribute("nothing").empty());
  CHECK(file.int_attribute("number") == -7);
}

TEST_CASE("what a file does not hold is refused with its path and the object's name") {
  const TempDir dir;
  write_small(dir / "small.h5");
  const H5Reader file(dir / "small.h5");
  CHECK(code_of([&] { file.read_u64("tokens", 0, 1); }) == ExitCode::io);
  CHECK(code_of([&] { file.read_u32("tokens", 7, 2); }) == ExitCode::io);
  CHECK(code_of([&] { file.read_u32("tokens", UINT64_MAX, 2); }) == ExitCode::io);
  CHECK(code_of([&] { file.text_attribute("vocabulary"); }) == ExitCode::io);
  CHECK(code_of([&] { H5Reader(dir / "absent.h5"); }) == ExitCode::usage);
  CHECK_THROWS_WITH(file.read_u32("offsets", 0, 1),
                    Catch::Contains("small.h5") && Catch::Contains("offsets"));
  CHECK_THROWS_WITH(file.int_attribute("max_len"),
                    Catch::Contains("small.h5") && Catch::Contains("max_len"));
}

TEST_CASE("a file that was not closed leaves nothing behind") {
  const TempDir dir;
  {
    H5Writer file(dir / "gone.h5");
    file.append("tokens", view(kIds));
  }
  CHECK(std::filesystem::is_empty(dir.path()));
  CHECK(code_of([&] { H5Writer(dir / "no" / "such.h5"); }) == ExitCode::io);
}

TEST_CASE("equal content gives equal bytes at another time") {
  const TempDir dir;
  write_small(dir / "a.h5");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5 times count seconds
  write_small(dir / "b.h5");
  CHECK(read_file(dir / "a.h5") == read_file(dir / "b.h5"));
}

TEST_CASE("a file cut at any length is refused") {
  const TempDir dir;
  write_small(dir / "small.h5");
  const std::string bytes = read_file(dir / "small.h5");
  for (std::size_t length = 0; length < bytes.size(); length += length < 4096 ? 1 : 97)
    REQUIRE_FALSE(read_small(fresh_file(dir, bytes.substr(0, length))).has_value());
}

TEST_CASE("an altered byte is refused or was of no meaning, never silently another value") {
  const TempDir dir;
  write_small(dir / "small.h5");
  const std::string bytes = read_file(dir / "small.h5");
  std::size_t refused = 0;
  for (std::size_t at = 0; at < bytes.size(); at += at < 4096 ? 1 : 61) {
    std::string altered = bytes;
    altered[at] = char(altered[at] ^ 0x5a);
    const auto seen = read_small(fresh_file(dir, altered));
    if (seen)
      REQUIRE(*seen == kIds);
    else
      ++refused;
  }
  CHECK(refused > 200);
}

TEST_CASE("threads may write and read different files at once") {
  const TempDir dir;
  std::vector<std::thread> threads;
  std::atomic<int> whole{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto path = dir / (std::to_string(t) + ".h5");
        write_small(path);
        whole += read_small(path) == kIds;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(whole == 80);
}

TEST_CASE(
    "a disk that fills up names path and reason, leaves nothing and lets the process end well") {
  const TempDir dir;
  for (const rlim_t limit : {0, 100, 2000, 20000, 200000}) {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit size{limit, limit};
      setrlimit(RLIMIT_FSIZE, &size);
      try {
        H5Writer file(dir / "full.h5");
        file.append("tokens", view(std::vector<std::uint32_t>(200000, 7)));
        file.close();
      } catch (const Error& error) {
        const std::string message = error.what();
        const bool named = message.find("full.h5") != std::string::npos &&
                           message.find("File too large") != std::string::npos;
        std::exit(error.code() == ExitCode::io && named ? 74 : 1);
      }
      std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CAPTURE(limit, status);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 74);
    for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
      FAIL_CHECK(entry.path().string() << " is left");
  }
}
