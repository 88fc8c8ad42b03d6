// A frozen model cut at an explored depth set.
#pragma once
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/explore/depth_set.h"
#include "common/model/config.h"
#include "common/model/fingerprint.h"
#include "common/model/head.h"
#include "common/model/stage.h"
#include "common/text/tokenizer.h"

namespace dex {

// What every process that has a part of a model knows of it. No weights.
struct ModelInfo {
  ModelConfig config;
  std::string fingerprint;  // adapters name the model they belong to by it
  // null when the directory has none (ids in, ids out)
  std::unique_ptr<Tokenizer> tokenizer;
  // The one rule of what may be emitted: an id is if the tokenizer has a token for it. One without
  // has no text, wherever it lies: past the tokenizer's last id, where the head's rows fill up a
  // round number, or in a hole before it. Without a tokenizer every id may be.
  int vocab = 0;                // ids from here on have no token
  std::vector<Token> holes;     // ids below it that have none, ascending
  std::vector<Token> stop_ids;  // ascending
};

// Which of a depth set's stages a process has.
struct StageShare {
  int begin = 0, end = 0;  // stages [begin, end)
  int size() const { return end - begin; }
};

// What is read beside the layers of a share.
struct ModelEnds {
  bool embedding = false, head = false;
};

// Of which tensors the SHA-256 are taken, by threads beside the one that loads. That is a second
// pass over all weights: only for who compares them (adapters, a training run, cached states).
enum class DigestsOf { nothing, what_is_read };

struct Model : ModelInfo {
  DepthSet depths;
  Dtype dtype;
  at::Device device = at::kCPU;          // where the weights lie
  StageShare share;                      // all stages but on ranks that share a model
  std::unique_ptr<Embedding> embedding;  // null where it was not asked for
  std::vector<Stage> stages;             // of the share, one per depth
  std::unique_ptr<Head> head;            // null where it was not asked for
  std::optional<Digests> digests;        // of the tensors that were read for all this, if asked for

  // Panels to decode with the model, rows to train on it. A share alone has the embedding where it
  // begins the model, and the head where one of its stages ends with an exit before the last;
  // `ends` asks for other ones. A tensor of the files that no model of this config reads is
  // Error(io) with its name (weight_list.h), whoever has which share.
  static Model load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                    WeightPlace place = WeightLayout::panels,
                    DigestsOf digests = DigestsOf::nothing);
  static Model load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                    WeightPlace place, StageShare share, DigestsOf digests = DigestsOf::nothing);
  static Model load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                    WeightPlace place, StageShare share, ModelEnds ends,
                    DigestsOf digests = DigestsOf::nothing);

  const Digests& known_digests() const;  // Error(bug) where they were not asked for

  const Stage& stage(int k) const;  // by its number in the depth set; of the share
  int exits() const {               // non-final depths of the share
    return std::min(share.end, depths.num_stages() - 1) - share.begin;
  }
  // Bytes of weights that a row meets on its way through all layers of the share and the head.
  std::int64_t pass_bytes() const;
};

}  // namespace dex
