// What a training run will need of each rank, from the model's sizes alone: layers, memory, bytes
// sent, time of a step.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/explore/depth_set.h"
#include "common/model/config.h"
#include "train/loop/train_options.h"
#include "train/ranks/rank_layout.h"

namespace dex {

struct SampleShape {  // of a mean sample
  double tokens = 1024, rows = 1024;
};

struct PipelineRankPlan {  // of one rank of each replica
  LayerRange layers;
  std::vector<int> depths;           // its exits
  std::int64_t trainable = 0;        // parameters
  double weight_bytes = 0;           // of the frozen layers
  double trained_bytes = 0;          // of adapters, gradients and moments
  double working_bytes = 0;          // of activations
  double sent_bytes = 0, flops = 0;  // a step
};

struct TrainPlan {
  int replicas = 1;
  SampleShape sample;
  std::int64_t trainable = 0;   // parameters of the model's adapters
  double flops_per_second = 0;  // assumed of a rank
  double step_seconds = 0;      // of the busiest rank, the others beside it
  std::vector<PipelineRankPlan> pipeline;
};

TrainPlan plan_training(const ModelConfig& config, const DepthSet& depths,
                        const TrainOptions& options, const RankLayout& layout,
                        const SampleShape& sample, double flops_per_second);

std::string text_of(const TrainPlan& plan);  // lines of a table
nlohmann::json to_json(const TrainPlan& plan);

}  // namespace dex
