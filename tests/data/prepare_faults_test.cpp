// dex prepare and its shards under failing operations, full disks and altered bytes.
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "common/base/digest.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "data/prepare.h"
#include "data/token_shards.h"
#include "tests/data/fake_renderer.h"
#include "tests/support/altered.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"
#include "tests/support/file_faults.h"
#include "tests/support/scale.h"
#include "tests/support/temp_dir.h"

using namespace dex;
namespace fs = std::filesystem;

namespace {

std::string chats(int count) {
  nlohmann::json records = nlohmann::json::array();
  for (int i = 0; i < count; ++i)
    records.push_back(
        {{"id", "chat" + std::to_string(i)},
         {"conversations",
          {{{"from", "human"}, {"value", "question " + std::to_string(i)}},
           {{"from", "gpt"}, {"value", std::string(std::size_t(i * 37 % 190), 'x') + "."}}}}});
  return records.dump();
}

std::string one_a_line(int count) {
  std::string lines;
  for (const auto& record : nlohmann::json::parse(chats(count))) lines += record.dump() + "\n";
  return lines;
}

PrepareOptions options_in(const test::TempDir& dir, int count) {
  fs::create_directory(dir / "here");
  PrepareOptions options;
  options.data = dir.write("chats.json", chats(count));
  options.out = dir / "here/out";
  options.max_len = 200;
  options.held_out = 0.2;
  options.threads = 1;
  return options;
}

std::vector<Sample> samples_of(const fs::path& out) {
  std::vector<Sample> all;
  for (const char* split : {"train", "held_out"}) {
    const TokenShards shards = TokenShards::open(out, split);
    for (std::size_t i = 0; i < shards.size(); ++i) all.push_back(shards.sample(i));
  }
  return all;
}

bool equal(const std::vector<Sample>& a, const std::vector<Sample>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Sample& x, const Sample& y) {
    return x.tokens == y.tokens && x.supervised == y.supervised;
  });
}

void overwrite(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

enum Answer { same, refused, changed };

struct Tally {
  int same = 0, refused = 0;
};

// Reads altered copies in one child with little memory. `after` may adapt other files to the copy.
Tally read_altered(const test::TempDir& dir, const fs::path& path, int count,
                   const std::function<void(const std::string&)>& after,
                   const std::function<Answer()>& read) {
  const std::string whole = read_file(path);
  const fs::path result = dir / "tally";
  const int code = test::code_in_child([&] {
    test::limit_memory(rlim_t{64} << 20);
    spdlog::set_level(spdlog::level::off);
    if (!std::freopen("/dev/null", "w", stderr)) return 1;  // progress
    std::mt19937 random(19);
    Tally tally;
    for (int i = 0; i < count; ++i) {
      const std::string copy = test::altered(whole, random);
      overwrite(path, copy);
      after(copy);
      const Answer answer = read();
      if (answer == changed)
        return overwrite(result, "copy " + std::to_string(i) + " was read as something else"), 1;
      ++(answer == same ? tally.same : tally.refused);
    }
    overwrite(result, std::to_string(tally.same) + " " + std::to_string(tally.refused));
    return 0;
  });
  INFO(path << ": " << (fs::exists(result) ? read_file(result) : "no result"));
  REQUIRE(code == 0);
  overwrite(path, whole);
  after(whole);
  Tally tally;
  std::ifstream(result) >> tally.same >> tally.refused;
  return tally;
}

// The reading of a data set whose right samples are known.
Answer read_data(const fs::path& out, const std::vector<Sample>& wanted) {
  try {
    return equal(samples_of(out), wanted) ? same : changed;
  } catch (const Error& error) {
    return error.code() == ExitCode::io &&
                   std::string(error.what()).find(out.string()) != std::string::npos
               ? refused
               : changed;
  }
}

}  // namespace

TEST_CASE("whatever operation of dex prepare fails, it names path and reason and leaves nothing",
          "[faults]") {
  test::skip_syncs();
  const test::TempDir dir(test::memory_directory());
  const PrepareOptions options = options_in(dir, 30);
  for (const int error : {EIO, ENOSPC}) {
    int failed = 0;
    for (int k = 1;; ++k) {
      const fs::path result = dir / "result";
      // In a child: HDF5 may keep a file open that it could not close.
      const int code = test::code_in_child([&] {
        test::fail_file_call(dir / "here", k, error);
        const auto thrown = test::error_of([&] { prepare(options, test::byte_renderer()); });
        const test::FileFault fault = test::stop_failing();
        overwrite(result, fault.call + ": " + (thrown ? thrown->what() : "nothing"));
        if (!fault.failed) return thrown ? 1 : 0;
        // HDF5 tries again
        if (!thrown)
          return samples_of(options.out).size() == 30 && fault.call.starts_with("open ") ? 10 : 2;
        if (thrown->code() != ExitCode::io) return 2;
        const std::string message = thrown->what();
        return message.find(dir.path().string()) != std::string::npos &&
                       message.find(std::strerror(error)) != std::string::npos
                   ? 74
                   : 3;
      });
      if (code == 0) break;
      ++failed;
      INFO("operation " << k << ", " << read_file(result));
      REQUIRE((code == 74 || code == 10));
      // After the rename the whole set stands there, synced or not.
      if (fs::exists(options.out)) {
        REQUIRE(samples_of(options.out).size() == 30);
        fs::remove_all(options.out);
      }
      REQUIRE(fs::is_empty(dir / "here"));
    }
    CHECK(failed > 25);
    fs::remove_all(options.out);
  }
}

TEST_CASE(
    "a disk that fills up at any of 200 places of dex prepare ends with code 74 and leaves nothing",
    "[faults]") {
  test::skip_syncs();
  const test::TempDir dir(test::memory_directory());
  const PrepareOptions options = options_in(dir, 300);
  prepare(options, test::byte_renderer());
  const auto largest = fs::file_size(options.out / "train-00000.h5");
  fs::remove_all(options.out);
  for (rlim_t i = 0; i < 200; ++i) {
    const rlim_t limit = i * largest / 200;
    const int code = test::code_in_child([&] {
      test::limit_file_size(limit);
      const auto error = test::error_of([&] { prepare(options, test::byte_renderer()); });
      const bool named =
          error && std::string(error->what()).find(std::strerror(EFBIG)) != std::string::npos;
      return named ? int(error->code()) : 1;
    });
    INFO(limit << " of " << largest);
    REQUIRE(code == 74);
    REQUIRE(fs::is_empty(dir / "here"));
  }
}

TEST_CASE("altered shards and manifests are refused or unchanged in meaning, in bounded memory",
          "[faults]") {
  const test::TempDir dir(test::memory_directory());
  const PrepareOptions options = options_in(dir, 40);
  prepare(options, test::byte_renderer());
  const auto wanted = samples_of(options.out);
  for (const char* name : {"train-00000.h5", "MANIFEST.json"}) {
    const int count =
        std::string(name) == "MANIFEST.json" ? test::times(200, 2000) : test::times(300, 10000);
    const Tally tally = read_altered(
        dir, options.out / name, count, [](const auto&) {},
        [&] { return read_data(options.out, wanted); });
    INFO(name);
    CHECK(tally.same + tally.refused == count);
    CHECK(tally.refused > count * 8 / 10);
    if (std::string(name) != "MANIFEST.json") CHECK(tally.same == 0);
  }
}

// A file may be altered before its digest is taken: then the checksums inside are all there is.
TEST_CASE("altered shards that a manifest vouches for are refused by HDF5 or unchanged in meaning",
          "[faults]") {
  const test::TempDir dir(test::memory_directory());
  const PrepareOptions options = options_in(dir, 40);
  prepare(options, test::byte_renderer());
  const auto wanted = samples_of(options.out);
  const auto vouch = [&](const std::string& copy) {
    Manifest manifest = read_manifest(options.out);
    ShardFile& shard = manifest.splits.at("train").at(0);
    shard.sha256 = sha256_of(copy);
    shard.bytes = copy.size();
    write_manifest(options.out, manifest);
  };
  test::skip_syncs();
  const int count = test::times(300, 10000);
  const Tally tally = read_altered(dir, options.out / "train-00000.h5", count, vouch,
                                   [&] { return read_data(options.out, wanted); });
  CHECK(tally.same + tally.refused == count);
  CHECK(tally.refused > count / 10);
}

TEST_CASE("a file altered before it is prepared ends in a data set or an error, never in a crash",
          "[faults]") {
  test::skip_syncs();
  const test::TempDir dir(test::memory_directory());
  PrepareOptions options = options_in(dir, 12);
  const int count = test::times(200, 3000);
  options.allow_truncated = true;
  const bool lines = GENERATE(false, true);
  if (lines) overwrite(options.data, one_a_line(12));
  const Tally tally = read_altered(
      dir, options.data, count, [](const auto&) {},
      [&] {
        fs::remove_all(options.out);
        try {
          const auto report = prepare(options, test::byte_renderer());
          return report.manifest.facts.counts.at("kept") > 0 ? same : changed;
        } catch (const Error& error) {
          return (error.code() == ExitCode::io || error.code() == ExitCode::usage) &&
                         !fs::exists(options.out.string() + ".tmp")
                     ? refused
                     : changed;
        }
      });
  CHECK(tally.same + tally.refused == count);
}
