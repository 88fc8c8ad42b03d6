#include "train/loop/train_setup.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/version.h"
#include "kernels/numbers_version.h"
#include "train/ranks/agreement.h"
#include "train/reports/flops.h"

namespace dex {
namespace {

std::vector<int> inner_depths(const DepthSet& depths) {
  require(depths.num_stages() >= 2, ExitCode::usage,
          "--depths names no depth before the last layer, {}, so there is nothing to train",
          depths.num_layers());
  return {depths.depths().begin(), depths.depths().end() - 1};
}

std::vector<int> own_part(const std::vector<int>& depths, const Model& model) {
  const auto begin = depths.begin() + model.share.begin;
  return {begin, begin + model.exits()};
}

nlohmann::json identity_of(const TrainOptions& options, const Model& model,
                           const TrainingData& data) {
  nlohmann::json identity = identity_of(options);
  identity["depths"] = model.depths.text();
  identity["model_fingerprint"] = model.fingerprint;
  identity["data_digest"] = data.digest;
  identity[kNumbersField] = kNumbersVersion;
  return identity;
}

// What ranks must agree on beside the run's identity, or they would wait for each other in vain.
nlohmann::json control_of(const TrainOptions& o) {
  return {{"save_every", o.save_every},
          {"stop_after", o.stop_after},
          {"eval_every", o.eval_every},
          {"eval_samples", o.eval_samples},
          {"keep", o.keep},
          {"on_nan", o.on_nan},
          {"nan_limit", o.nan_limit},
          {"resume", o.resume},
          {"restart", o.restart},
          {"deterministic", o.deterministic},
          {"out", o.out.string()}};
}

}  // namespace

TrainSetup::TrainSetup(const TrainOptions& o, const Model& m, TrainingData d,
                       std::function<bool()> stop, RankMessages r)
    : options(o),
      model(m),
      data(std::move(d)),
      stop_wanted(std::move(stop)),
      ranks(std::move(r)),
      depths(inner_depths(m.depths)),
      own_depths(own_part(depths, m)),
      order(data, o.seed, o.batch_size),
      total_steps(o.steps > 0 ? o.steps : o.epochs * order.epoch_steps()),
      identity(identity_of(o, m, data)) {}

ExitSizes TrainSetup::sizes(std::int64_t exits) const {
  const std::int64_t hidden = model.config.hidden_size;
  return {exits, hidden, options.width_for(hidden)};
}

AdapterConfig TrainSetup::adapter_config() const {
  return {.depths = depths,
          .hidden_size = model.config.hidden_size,
          .width = sizes(1).width,
          .model_fingerprint = model.fingerprint,
          .data_digest = data.digest,
          .tau = options.tau,
          .model_tensors = model_tensors};
}

Batch TrainSetup::batch(std::int64_t step) const {
  const ExitSizes exits = sizes(std::int64_t(depths.size()));
  return make_batch(order.samples(step), {std::size_t(options.micro_batch), options.micro_tokens},
                    [&](const Sample& sample) {
                      return step_flops(model.config, exits, model.config.vocab_size,
                                        std::span(&sample, 1));
                    });
}

void require_same_run(TrainSetup& setup) {
  const RankLayout& layout = setup.ranks.layout();
  nlohmann::json asked = {
      {"version", version()}, {"world_size", layout.world}, {"stages", layout.pipeline}};
  asked.update(setup.identity);
  asked.update(control_of(setup.options));
  require_agreement(setup.ranks, asked);
  setup.model_tensors = agreed_union(setup.ranks, "SHA-256", setup.model.known_digests());
  setup.identity["model_digest"] = joint_digest(setup.model_tensors);
}

}  // namespace dex
