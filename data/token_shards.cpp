#include "data/token_shards.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/json_file.h"

namespace dex {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A manifest may come from anywhere: what it lists lies in its own directory.
fs::path place_of(const fs::path& dir, const ShardFile& expected) {
  const fs::path name = expected.file;
  require(!name.empty() && name.filename() == name && name != "." && name != "..", ExitCode::io,
          "{}: its manifest lists \"{}\"; wanted the name of a file beside it", dir.string(),
          expected.file);
  const fs::path path = dir / name;
  require(fs::exists(path), ExitCode::io, "{}: missing, though the manifest lists it",
          path.string());
  require(fs::is_regular_file(fs::symlink_status(path)), ExitCode::io,
          "{}: a link, or no plain file; wanted the shard itself", path.string());
  return path;
}

void verify_bytes(const fs::path& path, const ShardFile& expected) {
  const auto bytes = fs::file_size(path);
  require(bytes == expected.bytes, ExitCode::io, "{}: {} bytes, wanted {}", path.string(), bytes,
          expected.bytes);
  const std::string digest = sha256_of_file(path);
  require(digest == expected.sha256, ExitCode::io, "{}: altered: SHA-256 {}, wanted {}",
          path.string(), digest, expected.sha256);
}

void verify_facts(const H5Reader& file, const ShardFacts& facts, const fs::path& path) {
  const auto check = [&](const char* name, const auto& seen, const auto& wanted) {
    require(seen == wanted, ExitCode::io, "{}: {} is {}, the manifest says {}", path.string(), name,
            seen, wanted);
  };
  check("format", file.text_attribute("format"), std::string("dex token shard 1"));
  check("tokenizer_digest", file.text_attribute("tokenizer_digest"), facts.tokenizer_digest);
  check("template_name", file.text_attribute("template_name"), facts.template_name);
  check("template_digest", file.text_attribute("template_digest"), facts.template_digest);
  check("source_digest", file.text_attribute("source_digest"), facts.source_digest);
  check("vocabulary", file.int_attribute("vocabulary"), facts.vocabulary);
  check("max_len", file.int_attribute("max_len"), facts.max_len);
}

}  // namespace

void verify_if_listed(const fs::path& file) {
  const fs::path dir = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!fs::exists(dir / "MANIFEST.json") ||
      read_json_object(dir / "MANIFEST.json").value("format", json()) != "dex token shards")
    return;
  for (const auto& [split, shards] : read_manifest(dir).splits)
    for (const ShardFile& shard : shards)
      if (shard.file == file.filename()) verify_bytes(place_of(dir, shard), shard);
}

TokenShards TokenShards::open(const fs::path& dir, const std::string& split) {
  TokenShards shards;
  shards.dir_ = dir;
  shards.manifest_ = read_manifest(dir);
  const auto files = shards.manifest_.splits.find(split);
  require(files != shards.manifest_.splits.end(), ExitCode::usage,
          "{}: no split '{}', wanted train or held_out", dir.string(), split);
  for (const ShardFile& file : files->second) {
    shards.shards_.push_back(shards.open_shard(file));
    shards.names_.push_back(file.file);
    shards.begins_.push_back(shards.begins_.back() + file.samples);
  }
  return shards;
}

TokenShards::Shard TokenShards::open_shard(const ShardFile& expected) const {
  const fs::path path = place_of(dir_, expected);
  verify_bytes(path, expected);
  Shard shard{std::make_unique<H5Reader>(path), {}};
  verify_facts(*shard.file, facts(), path);
  const std::vector<std::uint64_t> tokens = {expected.tokens}, offsets = {expected.samples + 1};
  require(shard.file->shape("tokens") == tokens && shard.file->shape("supervised") == tokens &&
              shard.file->shape("offsets") == offsets,
          ExitCode::io, "{}: its data sets do not hold {} samples of {} tokens", path.string(),
          expected.samples, expected.tokens);
  shard.offsets = shard.file->read_u64("offsets", 0, expected.samples + 1);
  require(shard.offsets.front() == 0 && shard.offsets.back() == expected.tokens &&
              std::is_sorted(shard.offsets.begin(), shard.offsets.end()),
          ExitCode::io, "{}: its offsets do not rise from 0 to {}", path.string(), expected.tokens);
  return shard;
}

Sample TokenShards::sample(std::size_t index) const {
  require(index < size(), ExitCode::bug, "{}: sample {} of {}", dir_.string(), index, size());
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), index);
  const auto number = std::size_t(after - begins_.begin()) - 1;
  const Shard& shard = shards_[number];
  const std::size_t place = index - begins_[number];
  const std::uint64_t first = shard.offsets[place], count = shard.offsets[place + 1] - first;
  const auto ids = shard.file->read_u32("tokens", first, count);
  for (std::uint32_t id : ids)
    require(id < std::uint64_t(facts().vocabulary), ExitCode::io,
            "{}: sample {} has token id {}, its vocabulary ends before {}", dir_.string(), index,
            id, facts().vocabulary);
  return {std::vector<Token>(ids.begin(), ids.end()),
          shard.file->read_u8("supervised", first, count)};
}

void TokenShards::require_made_for(const std::string& tokenizer_digest, std::int64_t embedding_rows,
                                   const std::string& template_digest) const {
  const auto check = [&](const char* what, const std::string& seen, const std::string& wanted) {
    require(
        wanted.empty() || seen == wanted, ExitCode::usage,
        "{}: made with another {} (digest {}, this model's is {}); run dex prepare with this model",
        dir_.string(), what, seen, wanted);
  };
  check("tokenizer", facts().tokenizer_digest, tokenizer_digest);
  check("chat template", facts().template_digest, template_digest);
  require(facts().vocabulary <= embedding_rows, ExitCode::usage,
          "{}: made for a vocabulary of {}, the model's embedding has {} rows", dir_.string(),
          facts().vocabulary, embedding_rows);
}

void TokenShards::require_positions(std::int64_t positions) const {
  std::uint64_t longest = 0;
  std::size_t where = 0;
  for (std::size_t s = 0; s < shards_.size(); ++s)
    for (std::size_t i = 1; i < shards_[s].offsets.size(); ++i)
      if (const auto length = shards_[s].offsets[i] - shards_[s].offsets[i - 1]; length > longest)
        longest = length, where = s;
  if (longest <= std::uint64_t(positions)) return;
  fail(ExitCode::usage,
       "{}: holds a sample of {} tokens, the model has {} positions; run dex prepare with "
       "--max-len {} at most",
       (dir_ / names_.at(where)).string(), longest, positions, positions);
}

}  // namespace dex
