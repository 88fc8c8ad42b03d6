#include "data/token_shards.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "data/shard_writer.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

using namespace dex;
using dex::test::TempDir;

namespace {

const ShardFacts kFacts = {
    "tokenizer", "chatml", "template", "source", 151936, 64, {{"read", 3}, {"kept", 3}}};

std::vector<Sample> samples() {
  return {{{1, 2, 3}, {0, 0, 1}}, {{65535, 65536, 151935, 0}, {0, 1, 1, 1}}, {{7, 8}, {0, 1}}};
}

void write_data(const std::filesystem::path& dir, std::uint64_t tokens_per_shard = 1 << 20) {
  make_directory(dir);
  ShardWriter writer(dir, 151936, tokens_per_shard);
  for (const Sample& sample : samples()) writer.add("train", sample);
  writer.finish(kFacts, {"file.json", 100, true, 3, 90}, "/models/x");
}

// Removed first: some file systems flush a file that is overwritten.
void replace(const TempDir& dir, const std::string& name, const std::string& bytes) {
  std::filesystem::remove(dir / name);
  dir.write(name, bytes);
}

void check_samples(const TokenShards& shards) {
  REQUIRE(shards.size() == 3);
  for (std::size_t i : {2, 0, 1}) {
    CHECK(shards.sample(i).tokens == samples()[i].tokens);
    CHECK(shards.sample(i).supervised == samples()[i].supervised);
  }
}

ExitCode code_of_opening(const std::filesystem::path& dir) {
  try {
    check_samples(TokenShards::open(dir, "train"));
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::done;
}

}  // namespace

TEST_CASE("samples come back ragged and in order, from one shard or several") {
  const TempDir dir;
  for (std::uint64_t tokens_per_shard : {1u, 4u, 1000u}) {
    const auto path = dir / std::to_string(tokens_per_shard);
    write_data(path, tokens_per_shard);
    const auto shards = TokenShards::open(path, "train");
    check_samples(shards);
    CHECK(shards.manifest().splits.at("train").size() == (tokens_per_shard == 1   ? 3
                                                          : tokens_per_shard == 4 ? 2
                                                                                  : 1));
    CHECK(shards.facts() == kFacts);
    CHECK(shards.manifest().source.cut_offset == 90);
    CHECK_THROWS_AS(shards.sample(3), Error);
    CHECK(TokenShards::open(path, "held_out").size() == 0);
  }
}

TEST_CASE("a shard is ordinary HDF5 with facts as attributes") {
  const TempDir dir;
  write_data(dir / "data");
  const H5Reader file(dir / "data/train-00000.h5");
  CHECK(file.names() == std::vector<std::string>{"offsets", "supervised", "tokens"});
  CHECK(file.read_u64("offsets", 0, 4) == std::vector<std::uint64_t>{0, 3, 7, 9});
  CHECK(file.read_u32("tokens", 3, 4) == std::vector<std::uint32_t>{65535, 65536, 151935, 0});
  CHECK(file.text_attribute("tokenizer_digest") == "tokenizer");
  CHECK(file.int_attribute("count.kept") == 3);
}

TEST_CASE("data for another tokenizer, template or a smaller embedding is refused") {
  const TempDir dir;
  write_data(dir / "data");
  const auto shards = TokenShards::open(dir / "data", "train");
  CHECK_NOTHROW(shards.require_made_for("tokenizer", 151936, "template"));
  CHECK_NOTHROW(shards.require_made_for("", 152064));
  CHECK_THROWS_WITH(shards.require_made_for("other", 151936),
                    Catch::Contains("tokenizer") && Catch::Contains("other"));
  CHECK_THROWS_WITH(shards.require_made_for("tokenizer", 151936, "t2"),
                    Catch::Contains("chat template"));
  CHECK_THROWS_WITH(shards.require_made_for("tokenizer", 32000),
                    Catch::Contains("151936") && Catch::Contains("32000"));
}

TEST_CASE("the writer refuses ids outside the vocabulary") {
  const TempDir dir;
  ShardWriter writer(dir.path(), 10);
  CHECK_THROWS_AS(writer.add("train", {{1, 10}, {0, 1}}), Error);
  CHECK_THROWS_AS(writer.add("train", {{1, -1}, {0, 1}}), Error);
}

TEST_CASE("ids outside the vocabulary are refused on reading, too") {
  const TempDir dir;
  make_directory(dir / "data");
  ShardWriter writer(dir / "data", 151936);
  for (const Sample& sample : samples()) writer.add("train", sample);
  ShardFacts facts = kFacts;
  facts.vocabulary = 65536;
  writer.finish(facts, {}, "");
  const auto shards = TokenShards::open(dir / "data", "train");
  CHECK(shards.sample(0).tokens.size() == 3);
  CHECK_THROWS_WITH(shards.sample(1), Catch::Contains("sample 1") && Catch::Contains("65536"));
}

TEST_CASE("a manifest lists files of its own directory only, and no links") {
  const TempDir dir;
  write_data(dir / "data");
  write_data(dir / "other");
  const Manifest manifest = read_manifest(dir / "data");
  const std::vector<std::string> names{"../other/train-00000.h5",
                                       (dir / "other/train-00000.h5").string(),
                                       "./train-00000.h5",
                                       "sub/train-00000.h5",
                                       "/etc/passwd",
                                       "..",
                                       ".",
                                       ""};
  for (const std::string& name : names) {
    CAPTURE(name);
    Manifest altered = manifest;
    altered.splits.at("train")[0].file = name;
    write_manifest(dir / "data", altered);
    test::check_refused(ExitCode::io, {(dir / "data").string(), "\"" + name + "\"", "beside it"},
                        [&] { TokenShards::open(dir / "data", "train"); });
  }
  write_manifest(dir / "data", manifest);
  check_samples(TokenShards::open(dir / "data", "train"));
  const auto shard = dir / "data/train-00000.h5";
  std::filesystem::rename(shard, dir / "moved.h5");
  for (const std::filesystem::path& target :
       {dir / "moved.h5", std::filesystem::path("../moved.h5"),
        std::filesystem::path("../other/train-00000.h5")}) {
    std::filesystem::create_symlink(target, shard);
    test::check_refused(ExitCode::io, {shard.string(), "link"},
                        [&] { TokenShards::open(dir / "data", "train"); });
    std::filesystem::remove(shard);
  }
  // the whole directory may be one
  std::filesystem::rename(dir / "moved.h5", shard);
  std::filesystem::create_directory_symlink(dir / "data", dir / "link");
  check_samples(TokenShards::open(dir / "link", "train"));
}

TEST_CASE("a shard alone is held against the manifest beside it, where one lists it") {
  const TempDir dir;
  write_data(dir / "data");
  const auto shard = dir / "data/train-00000.h5";
  const std::string whole = read_file(shard);
  CHECK_NOTHROW(verify_if_listed(shard));
  replace(dir, "data/train-00000.h5", whole.substr(0, whole.size() - 1) + "x");
  test::check_refused(ExitCode::io, {shard.string(), "altered"}, [&] { verify_if_listed(shard); });
  std::filesystem::copy(shard, dir / "data/unlisted.h5");
  CHECK_NOTHROW(verify_if_listed(dir / "data/unlisted.h5"));
  std::filesystem::copy(shard, dir / "alone.h5");
  CHECK_NOTHROW(verify_if_listed(dir / "alone.h5"));
  dir.write("MANIFEST.json", "{\"format\": \"dex-checkpoint-1\"}");
  CHECK_NOTHROW(verify_if_listed(dir / "alone.h5"));
}

TEST_CASE("a shard cut at any length is refused before HDF5 sees it") {
  const TempDir dir;
  write_data(dir / "data");
  const std::string bytes = read_file(dir / "data/train-00000.h5");
  for (std::size_t length = 0; length < bytes.size(); length += length < 2000 ? 1 : 499) {
    replace(dir, "data/train-00000.h5", bytes.substr(0, length));
    REQUIRE(code_of_opening(dir / "data") == ExitCode::io);
  }
}

TEST_CASE("an altered byte of shard or manifest is refused") {
  const TempDir dir;
  write_data(dir / "data");
  for (const char* name : {"data/train-00000.h5", "data/MANIFEST.json"}) {
    const std::string bytes = read_file(dir / name);
    for (std::size_t at = 0; at < bytes.size(); at += at < 2000 ? 1 : 499) {
      std::string altered = bytes;
      altered[at] = char(altered[at] ^ 0x15);
      replace(dir, name, altered);
      CAPTURE(name, at);
      // White space between values of the manifest carries nothing.
      if (std::isspace(static_cast<unsigned char>(bytes[at])) &&
          std::isspace(static_cast<unsigned char>(altered[at])))
        continue;
      REQUIRE(code_of_opening(dir / "data") == ExitCode::io);
    }
    replace(dir, name, bytes);
  }
  CHECK(code_of_opening(dir / "data") == ExitCode::done);
}

TEST_CASE("a cut manifest, a missing shard and a shard of other data are refused") {
  const TempDir dir;
  write_data(dir / "data");
  const std::string manifest = read_file(dir / "data/MANIFEST.json");
  for (std::size_t length = 0; length + 2 < manifest.size(); length += 3) {
    replace(dir, "data/MANIFEST.json", manifest.substr(0, length));
    REQUIRE(code_of_opening(dir / "data") == ExitCode::io);
  }
  replace(dir, "data/MANIFEST.json", manifest);
  std::filesystem::remove(dir / "data/train-00000.h5");
  CHECK(code_of_opening(dir / "data") == ExitCode::io);
  CHECK(code_of_opening(dir / "nowhere") == ExitCode::usage);
  make_directory(dir / "empty");
  CHECK(code_of_opening(dir / "empty") == ExitCode::usage);
  write_data(dir / "again");
  CHECK_THROWS_AS(TokenShards::open(dir / "again", "test"), Error);
}
