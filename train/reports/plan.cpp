#include "train/reports/plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/base/dtype.h"
#include "train/loss/distill_loss.h"
#include "train/ranks/flat_adapters.h"
#include "train/reports/flops.h"

namespace dex {
namespace {

// Of one step on one replica.
struct Work {
  double tokens, rows, passes;
};

double working_bytes_of(const ModelConfig& c, const PipelineRankPlan& p, const ExitSizes& adapter,
                        const Work& work, double length, double ahead, double type) {
  const double tokens = work.tokens / std::max(1.0, work.passes),
               rows = work.rows / std::max(1.0, work.passes);
  const double h = c.hidden_size, qkv = (double(c.num_heads) + 2.0 * c.num_kv_heads) * c.head_dim;
  const double layer =  // one sample at a time, between the rows that came and those that leave
      length * type * (2 * h + 3 * qkv + 3 * double(c.intermediate_size)) + tokens * 8 * h;
  const double exits = p.depths.size();
  const double kept =
      ahead * rows * h * 4 * (exits + 1) + exits * rows * (6 * h + 2 * double(adapter.width)) * 4;
  const double logits = (1 + exits) * double(DistillLoss::kChunkBytes);  // teacher's, students'
  return layer + kept + (exits > 0 ? logits : 0);
}

std::string bytes_text(double bytes) {
  return bytes < 1e9 ? fmt::format("{:.1f} MB", bytes / 1e6)
                     : fmt::format("{:.2f} GB", bytes / 1e9);
}

}  // namespace

TrainPlan plan_training(const ModelConfig& c, const DepthSet& depths, const TrainOptions& o,
                        const RankLayout& layout, const SampleShape& sample,
                        double flops_per_second) {
  const ExitSizes adapter{1, c.hidden_size, o.width_for(c.hidden_size)};
  const double type = size_of(parse_dtype(o.dtype)), replicas = layout.replicas(),
               h = double(c.hidden_size);
  const double vocab_bytes = double(c.vocab_size) * h * type;
  const Work work{
      o.batch_size * sample.tokens / replicas, o.batch_size * sample.rows / replicas,
      std::ceil(o.batch_size *
                std::max(1.0 / o.micro_batch, sample.tokens / double(o.micro_tokens)) / replicas)};
  TrainPlan plan{
      .replicas = layout.replicas(), .sample = sample, .flops_per_second = flops_per_second};
  for (int rank = 0; rank < layout.pipeline; ++rank) {
    const StageShare share = layout.stages(rank);
    const bool first = rank == 0, last = rank == layout.pipeline - 1;
    PipelineRankPlan p;
    p.layers = {depths.layers(share.begin).first, depths.layers(share.end - 1).last};
    for (int stage = share.begin; stage < std::min(share.end, depths.num_stages() - 1); ++stage)
      p.depths.push_back(depths.depth(stage));
    const bool head = !p.depths.empty() || layout.pipeline == 1;
    p.trainable = std::int64_t(p.depths.size()) * adapter.parameters();
    p.weight_bytes = p.layers.size() * layer_parameters(c) * type +
                     vocab_bytes * ((first ? 1 : 0) + (head && !(first && c.tied_head) ? 1 : 0));
    const double gradients =
        std::bit_width(std::uint64_t(work.passes)) + 1;  // open parts of the pairwise sum
    p.trained_bytes = double(p.trainable) * 4 * (3 + gradients);
    p.working_bytes =
        working_bytes_of(c, p, adapter, work, sample.tokens, layout.passes_ahead(rank), type);
    const ExitSizes exits{std::int64_t(p.depths.size()), adapter.hidden, adapter.width};
    p.flops = o.batch_size / replicas * layers_flops(c, p.layers.size(), sample.tokens) +
              exits_flops(exits, c.vocab_size, work.rows);
    p.sent_bytes = (last ? (layout.pipeline - 1) * work.rows : work.tokens) * h * 4 +
                   2 * (replicas - 1) / replicas * double(p.trainable) * 4;
    plan.trainable += p.trainable;
    if (flops_per_second > 0)
      plan.step_seconds = std::max(plan.step_seconds, p.flops / flops_per_second);
    plan.pipeline.push_back(std::move(p));
  }
  return plan;
}

std::string text_of(const TrainPlan& plan) {
  std::string text =
      fmt::format("{:>8} {:>10} {:>14} {:>14} {:>11} {:>11} {:>11} {:>11}\n", "position", "layers",
                  "depths", "trainable", "weights", "trained", "working", "sent/step");
  for (std::size_t i = 0; i < plan.pipeline.size(); ++i) {
    const PipelineRankPlan& p = plan.pipeline[i];
    text += fmt::format("{:>8} {:>10} {:>14} {:>14} {:>11} {:>11} {:>11} {:>11}\n", i,
                        fmt::format("{}-{}", p.layers.first + 1, p.layers.last),
                        p.depths.empty() ? "none" : fmt::format("{}", fmt::join(p.depths, ",")),
                        p.trainable, bytes_text(p.weight_bytes), bytes_text(p.trained_bytes),
                        bytes_text(p.working_bytes), bytes_text(p.sent_bytes));
  }
  text += fmt::format(
      "{} parameters to train on {} ranks: {} positions x {} replicas; samples of {:.0f} tokens, "
      "{:.0f} supervised\n",
      plan.trainable, plan.pipeline.size() * std::size_t(plan.replicas), plan.pipeline.size(),
      plan.replicas, plan.sample.tokens, plan.sample.rows);
  if (plan.flops_per_second > 0)
    text += fmt::format("a step takes about {:.3g} s at {:.3g} TFLOP/s of a rank",
                        plan.step_seconds, plan.flops_per_second / 1e12);
  return text;
}

nlohmann::json to_json(const TrainPlan& plan) {
  nlohmann::json pipeline = nlohmann::json::array();
  for (const PipelineRankPlan& p : plan.pipeline)
    pipeline.push_back({{"layers", {p.layers.first + 1, p.layers.last}},
                        {"depths", p.depths},
                        {"trainable", p.trainable},
                        {"weight_bytes", p.weight_bytes},
                        {"trained_bytes", p.trained_bytes},
                        {"working_bytes", p.working_bytes},
                        {"sent_bytes", p.sent_bytes},
                        {"flops", p.flops}});
  return {{"command", "train"},
          {"status", "planned"},
          {"parameters", plan.trainable},
          {"ranks", plan.pipeline.size() * std::size_t(plan.replicas)},
          {"replicas", plan.replicas},
          {"flops_per_second", plan.flops_per_second},
          {"step_seconds", plan.step_seconds},
          {"positions", pipeline}};
}

}  // namespace dex
