// A frozen model cut at an explored depth set.
#pragma once
#include <algorithm>
#include <filesystem>
#include <memory>
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
  int vocab = 0;                // ids below it may be emitted: those that the tokenizer knows
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

struct Model : ModelInfo {
  DepthSet depths;
  Dtype dtype;
  at::Device device = at::kCPU;          // where the weights lie
  StageShare share;                      // all stages but on ranks that share a model
  std::unique_ptr<Embedding> embedding;  // null where it was not asked for
  std::vector<Stage> stages;             // of the share, one per depth
  std::unique_ptr<Head> head;            // null where it was not asked for
  Digests digests;                       // of the tensors that were read for all this

  // Panels to decode with the model, rows to train on it. A share alone has the embedding where it
  // begins the model, and the head where one of its stages ends with an exit before the last;
  // `ends` asks for other ones. A tensor of the files that no model of this config reads is
  // Error(io) with its name (weight_list.h), whoever has which share.
  static Model load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                    WeightPlace place = WeightLayout::panels);
  static Model load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                    WeightPlace place, StageShare share);
  static Model load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                    WeightPlace place, StageShare share, ModelEnds ends);

  const Stage& stage(int k) const;  // by its number in the depth set; of the share
  int exits() const {               // non-final depths of the share
    return std::min(share.end, depths.num_stages() - 1) - share.begin;
  }
  // Bytes of weights that a row meets on its way through all layers of the share and the head.
  std::int64_t pass_bytes() const;
};

}  // namespace dex
