// A frozen model cut at an explored depth set.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/config.h"
#include "common/depth_set.h"
#include "common/head.h"
#include "common/stage.h"
#include "common/tokenizer.h"

namespace dex {

struct Model {
  ModelConfig config;
  DepthSet depths;
  Dtype dtype;
  std::string fingerprint;               // of config and weights; adapters name the model they belong to by it
  std::unique_ptr<Tokenizer> tokenizer;  // null when the directory has none (ids in, ids out)
  std::unique_ptr<Embedding> embedding;
  std::vector<Stage> stages;             // one per depth
  std::unique_ptr<Head> head;
  std::vector<Token> stop_ids;           // ascending

  // `layout`: panels to decode with the model, rows to train on it.
  static Model load(const std::filesystem::path& dir, const DepthSet& depths, Dtype dtype,
                    WeightLayout layout = WeightLayout::panels);
};

// SHA-256 over the config's numbers and every tensor's name, type, shape and first and last 4 KiB: cheap at any size. A change
// only in the middle of a tensor is not seen.
std::string model_fingerprint(const ModelConfig& config, const WeightFile& weights);

}  // namespace dex
