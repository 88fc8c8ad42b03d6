// MANIFEST.json of a prepared data set: what it was made from, and the digest of every shard.
// FORMAT.md has the fields.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace dex {

struct ShardFacts {  // stands in the manifest and, as attributes, in every shard
  std::string tokenizer_digest, template_name, template_digest, source_digest;
  std::int64_t vocabulary = 0, max_len = 0;
  // "read", "kept", "skipped.<reason>", "repaired.<repair>"
  std::map<std::string, std::int64_t> counts;

  bool operator==(const ShardFacts&) const = default;
};

struct SourceNote {
  std::string name;              // file name without its directory
  std::uint64_t bytes = 0;       // that were read and digested
  bool cut = false;              // the file ended before its array did:
  std::uint64_t cut_record = 0;  // the first record that is missing or incomplete
  std::uint64_t cut_offset = 0;  // the byte where it starts
};

// What a set's counts say of records that were skipped: "2 malformed, 1 no_turns", or "".
std::string skipped_text(const std::map<std::string, std::int64_t>& counts);

struct ShardFile {
  std::string file, sha256;
  std::uint64_t bytes = 0, samples = 0, tokens = 0, supervised = 0;
};

struct SplitTotals {
  std::uint64_t samples = 0, tokens = 0, supervised = 0, shards = 0;
};
SplitTotals totals_of(const std::vector<ShardFile>& files);

struct Manifest {
  ShardFacts facts;
  SourceNote source;
  std::string model;  // the directory the tokenizer was read from
  std::map<std::string, std::vector<ShardFile>> splits;

  // of all shards: equal for equal samples, wherever they were made
  std::string data_digest() const;
};

// Error(usage) when there is no manifest, Error(io) when it is cut, altered or of another version.
Manifest read_manifest(const std::filesystem::path& dir);
void write_manifest(const std::filesystem::path& dir, const Manifest& manifest);

}  // namespace dex
