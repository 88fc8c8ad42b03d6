#include "decode/methods/lookup.h"

#include <utility>

#include "common/model/cpu_engine.h"
#include "decode/methods/local_explorers.h"
#include "decode/methods/round_costs.h"
#include "decode/session.h"

namespace dex {
namespace {

std::unique_ptr<Decoder> decoder_of(const Model& model, LatticePolicy policy,
                                    std::vector<std::unique_ptr<StageEngine>> engines) {
  ExplorePlan plan{DepthSet({}, model.config.num_layers), std::move(policy), nullptr};
  plan.drafts = drafts_of(plan.policy);
  return local_explorers(model, std::move(plan), std::move(engines));
}

}  // namespace

std::vector<std::unique_ptr<StageEngine>> whole_model(const Model& model, int threads) {
  std::vector<std::unique_ptr<StageEngine>> engines;
  engines.push_back(std::make_unique<CpuEngine>(model, StageShare{0, model.depths.num_stages()},
                                                nullptr, std::make_shared<ThreadPool>(threads)));
  return engines;
}

std::unique_ptr<Decoder> lookup_decoder(const Model& model, LatticePolicy policy, int threads) {
  return decoder_of(model, std::move(policy), whole_model(model, threads));
}

Method lookup_method(std::shared_ptr<const ExploreOptions> options) {
  return {.name = "lookup",
          .summary = "plain decoding with drafts from the text itself",
          .check = [options](const DepthSet&) { options->lookup_policy().check(1); },
          .make =
              [options](const Session& session) {
                const Model& model = session.model();
                LatticePolicy policy = options->lookup_policy();
                auto engines = whole_model(model, session.threads());
                if (options->auto_rows())
                  policy.costs = round_costs(*options, session, engines, "lookup");
                return decoder_of(model, std::move(policy), std::move(engines));
              },
          .estimate = [options](const Session& session) -> std::optional<double> {
            if (options->lookup == 0) return std::nullopt;
            return estimated_seconds(*plain_costs(*options, session), 1, /*drafts=*/true);
          }};
}

}  // namespace dex
