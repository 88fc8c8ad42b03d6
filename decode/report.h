// What a decoding run says about itself: counts of rounds, hops and hits per depth, and speeds.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/explore/depth_set.h"
#include "decode/decoder.h"

namespace dex {

class DecodeTally {
 public:
  explicit DecodeTally(const DepthSet& depths);
  void add(const DecodeResult& result);

  std::int64_t tokens() const { return tokens_; }
  int explorers() const { return depths_.num_stages(); }
  double tokens_per_second() const {
    return decode_seconds_ > 0 ? double(tokens_) / decode_seconds_ : 0;
  }
  double first_token_seconds() const {
    return texts_ > 0 ? first_token_seconds_ / double(texts_) : 0;
  }
  std::string table() const;  // aligned, a line per exit
  nlohmann::json json() const;

 private:
  DepthSet depths_;
  std::int64_t texts_ = 0, tokens_ = 0, rounds_ = 0, rows_ = 0, hopped_ = 0, hop_sum_ = 0,
               near_ties_ = 0;
  int peak_rows_ = 0;
  double decode_seconds_ = 0, prefill_seconds_ = 0, first_token_seconds_ = 0;
  std::vector<std::int64_t> hits_;  // committed tokens by branch, the last of each text left out
  std::int64_t drafted_ = 0;        // those that a draft had proposed
};

// Positions whose final logits' best two differ by less than this are near ties.
constexpr float kNearTie = 1e-3f;

void show(const std::string& report);  // on stderr, unless --quiet

std::uint64_t hash_of(const std::vector<Token>& ids);  // FNV-1a over the ids' bytes

// Both speeds side by side, and why exploration does not pay on one memory bus.
std::string speed_table(const DecodeTally& plain, const DecodeTally& other,
                        const std::string& name);

}  // namespace dex
