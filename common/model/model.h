// A frozen model cut at an explored depth set.
#pragma once
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/explore/depth_set.h"
#include "common/model/config.h"
#include "common/model/head.h"
#include "common/model/stage.h"
#include "common/text/tokenizer.h"

namespace dex {

// Which of a depth set's stages a process has. The first has the embedding, all that have an exit
// before the last the head.
struct StageShare {
  int begin = 0, end = 0;  // stages [begin, end)
};

struct Model {
  ModelConfig config;
  DepthSet depths;
  Dtype dtype;
  at::Device device = at::kCPU;  // where the weights lie
  // of config and weights; adapters name the model they belong to by it
  std::string fingerprint;
  std::unique_ptr<Tokenizer> tokenizer;  // null when the directory has none (ids in, ids out)
  StageShare share;                      // all of them but on ranks that share a model
  std::unique_ptr<Embedding> embedding;  // null unless the share begins with stage 0
  std::vector<Stage> stages;             // of the share, one per depth
  // null when the share is the last stage alone and not all of the model
  std::unique_ptr<Head> head;
  std::vector<Token> stop_ids;  // ascending

  // Panels to decode with the model, rows to train on it.
  static Model load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                    WeightPlace place = WeightLayout::panels);
  static Model load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                    WeightPlace place, StageShare share);

  int exits() const {
    return std::min(share.end, depths.num_stages() - 1) - share.begin;
  }  // non-final depths of the share
};

// SHA-256 over the config's numbers and every tensor's name, type, shape and first and last 4 KiB:
// cheap at any size. A change only in the middle of a tensor is not seen.
std::string model_fingerprint(const ModelConfig& config, const WeightFile& weights);

}  // namespace dex
