#include "common/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "common/base/finite.h"
#include "common/base/safetensors.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

using namespace dex;
namespace fs = std::filesystem;
using test::TempDir;

namespace {

constexpr std::size_t kPage = 4096, kPages = 16;

unsigned sum_of(std::span<const std::byte> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0u,
                         [](unsigned sum, std::byte byte) { return sum + unsigned(byte); });
}

// The exit code of a child that runs `act`, and what it writes to stderr.
std::pair<int, std::string> ended(const TempDir& dir, const std::function<int()>& act) {
  const fs::path told = dir / "stderr";
  const int code = test::code_in_child([&] {
    const int file = open(told.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(file, STDERR_FILENO);
    return act();
  });
  return {code, test::contents(told)};
}

fs::path write_weights(const TempDir& dir) {
  const std::vector<float> values(kPages * kPage / sizeof(float), 0.5f);
  const StoredTensor tensor{
      StoredType::f32, {std::int64_t(values.size())}, std::as_bytes(std::span(values))};
  write_safetensors(dir / "w.safetensors", {{"a", tensor}, {"b", tensor}}, {});
  return dir / "w.safetensors";
}

}  // namespace

TEST_CASE("a mapped file that is cut while it is read ends the process with 74 and its path") {
  const TempDir dir;
  using Reader = std::function<unsigned(const fs::path&, std::size_t left)>;
  const std::vector<std::pair<const char*, Reader>> readers{
      {"bytes",
       [](const fs::path& path, std::size_t left) {
         const MappedFile file(path);
         fs::resize_file(path, left);
         return sum_of(file.bytes());
       }},
      {"moved",
       [](const fs::path& path, std::size_t left) {
         MappedFile first(path);
         const MappedFile other(path);  // watched, too
         const MappedFile file = std::move(first);
         fs::resize_file(path, left);
         return sum_of(file.bytes());
       }},
      {"a tensor",
       [](const fs::path& path, std::size_t left) {
         const WeightFile file = WeightFile::open(path);
         fs::resize_file(path, left);
         return unsigned(all_finite(file.at("b")));
       }},
      {"another thread's digest",
       [](const fs::path& path, std::size_t left) {
         WeightFile file = WeightFile::open(path);
         file.take_digests();
         fs::resize_file(path, left);
         file.at("b");
         return unsigned(file.digests().size());
       }},
      {"several threads", [](const fs::path& path, std::size_t left) {
         const MappedFile file(path);
         fs::resize_file(path, left);
         std::atomic<unsigned> sum{0};
         std::vector<std::thread> threads;
         for (int i = 0; i < 4; ++i) threads.emplace_back([&] { sum += sum_of(file.bytes()); });
         for (std::thread& thread : threads) thread.join();
         return sum.load();
       }}};
  for (const auto& [name, read] : readers)
    for (const std::size_t left : {std::size_t{0}, kPage, kPages * kPage}) {
      CAPTURE(name, left);
      const fs::path path = write_weights(dir);
      const auto [code, told] = ended(dir, [&, read = read] { return int(read(path, left)); });
      CHECK(code == 74);
      CHECK(told.find("error: " + path.string() + ": cut") != std::string::npos);
      CHECK(std::count(told.begin(), told.end(), '\n') == 1);
    }
}

// What such a fault ends a process with; a sanitizer of addresses tells of it first.
#if defined(__SANITIZE_ADDRESS__)
constexpr int kBusError = 1;
constexpr bool kTellsItself = true;
#else
constexpr int kBusError = 1000 + SIGBUS;
constexpr bool kTellsItself = false;
#endif

TEST_CASE("a fault in memory that is no mapped file's stays what it is") {
  const TempDir dir;
  const fs::path ours = dir.write("ours", std::string(kPage, 'x')),
                 theirs = dir.write("theirs", std::string(2 * kPage, 'x'));
  const auto [code, told] = ended(dir, [&] {
    const MappedFile file(ours);
    const int descriptor = open(theirs.c_str(), O_RDONLY);
    const auto* bytes =
        static_cast<const char*>(mmap(nullptr, 2 * kPage, PROT_READ, MAP_PRIVATE, descriptor, 0));
    fs::resize_file(theirs, 0);
    return int(bytes[kPage]);
  });
  CHECK(code == kBusError);
  CHECK(told.empty() != kTellsItself);
}

TEST_CASE("a range is watched no longer than its file lives") {
  const TempDir dir;
  const fs::path path = dir.write("a", std::string(kPage, 'x'));
  const auto [code, told] = ended(dir, [&] {
    const void* place = nullptr;
    {
      const MappedFile file(path);
      place = file.bytes().data();
    }
    const int descriptor = open(path.c_str(), O_RDONLY);
    const auto* bytes = static_cast<const char*>(
        mmap(const_cast<void*>(place), kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, descriptor, 0));
    fs::resize_file(path, 0);
    return int(bytes[0]);
  });
  CHECK(code == kBusError);
}

TEST_CASE("a file that was written to while it was mapped is told, one that was replaced is not") {
  const TempDir dir;
  const auto mapped_and = [&](const std::function<void(const fs::path&)>& change) {
    const fs::path path = dir.write("a", std::string(kPage + 10, 'x'));
    fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
    const MappedFile file(path);
    change(path);
    file.require_unchanged();
  };
  CHECK_NOTHROW(mapped_and([](const fs::path&) {}));
  CHECK_NOTHROW(mapped_and([&](const fs::path& path) {
    dir.write("b", "other");
    fs::rename(dir / "b", path);
  }));
  CHECK_NOTHROW(mapped_and([](const fs::path& path) { fs::remove(path); }));
  test::check_refused(ExitCode::io, {(dir / "a").string(), "4096 bytes", "4106"}, [&] {
    mapped_and([](const fs::path& path) { fs::resize_file(path, kPage); });
  });
  // inside the last page nothing faults: the bytes there become zeros
  test::check_refused(ExitCode::io, {(dir / "a").string(), "4101 bytes", "4106"}, [&] {
    mapped_and([](const fs::path& path) { fs::resize_file(path, kPage + 5); });
  });
  test::check_refused(ExitCode::io, {(dir / "a").string(), "written to"}, [&] {
    mapped_and([&](const fs::path& path) {
      std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << "y";
    });
  });
}
