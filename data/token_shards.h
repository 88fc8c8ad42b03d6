// The samples of one split of a prepared data set.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/h5.h"
#include "data/manifest.h"
#include "data/sample.h"

namespace dex {

// Error(io) when a manifest of token shards beside the file lists it with other bytes.
void verify_if_listed(const std::filesystem::path& file);

class TokenShards {
 public:
  // `split` is "train" or "held_out" (may be empty). Sizes and digests of all its shards are
  // verified before HDF5 sees one. Error(usage) when `dir` is no data set, Error(io) when anything
  // is cut, altered or missing.
  static TokenShards open(const std::filesystem::path& dir, const std::string& split);

  std::size_t size() const { return begins_.back(); }
  Sample sample(std::size_t index) const;  // an id outside the vocabulary is Error(io)

  const ShardFacts& facts() const { return manifest_.facts; }
  const Manifest& manifest() const { return manifest_; }
  std::string digest() const { return manifest_.data_digest(); }

  // Error(usage) with both values unless the data was made with this tokenizer and this template
  // and every id it may hold has a row in the embedding. "" leaves tokenizer or template unchecked.
  void require_made_for(const std::string& tokenizer_digest, std::int64_t embedding_rows,
                        const std::string& template_digest = "") const;

  // Error(usage) naming the shard of the longest sample, and both numbers, when that has more
  // tokens than there are positions.
  void require_positions(std::int64_t positions) const;

 private:
  struct Shard {
    std::unique_ptr<H5Reader> file;
    std::vector<std::uint64_t> offsets;
  };
  TokenShards() = default;
  Shard open_shard(const ShardFile& expected) const;

  std::filesystem::path dir_;
  Manifest manifest_;
  std::vector<Shard> shards_;
  std::vector<std::string> names_;      // of shards_
  std::vector<std::size_t> begins_{0};  // shard s holds samples [begins_[s], begins_[s+1])
};

}  // namespace dex
