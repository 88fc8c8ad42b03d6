// Writes samples as ragged HDF5 shards. FORMAT.md describes them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/manifest.h"
#include "data/sample.h"

namespace dex {

class ShardWriter {
 public:
  // Into an existing directory; a new shard is begun when one has `tokens_per_shard`.
  ShardWriter(std::filesystem::path dir, std::int64_t vocabulary,
              std::uint64_t tokens_per_shard = std::uint64_t{1} << 24);
  ~ShardWriter();

  // an id outside the vocabulary is Error(bug)
  void add(const std::string& split, const Sample& sample);
  // Gives every shard the facts, closes all, writes the manifest last.
  void finish(const ShardFacts& facts, const SourceNote& source, const std::string& model);

 private:
  struct Shard;
  Shard& shard_for(const std::string& split);

  std::filesystem::path dir_;
  std::int64_t vocabulary_;
  std::uint64_t tokens_per_shard_;
  std::map<std::string, std::vector<std::unique_ptr<Shard>>> splits_;
};

}  // namespace dex
