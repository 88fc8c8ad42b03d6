#include "decode/methods/round_costs.h"

#include "common/base/cpu_name.h"
#include "common/base/dtype.h"
#include "common/base/version.h"
#include "decode/explorer/cost_file.h"
#include "decode/explorer/measure_costs.h"
#include "decode/methods/lookup.h"
#include "decode/session.h"

namespace dex {

std::shared_ptr<const RowCosts> round_costs(
    const ExploreOptions& options, const Session& session,
    const std::vector<std::unique_ptr<StageEngine>>& engines, const std::string& what,
    bool shared_head) {
  const Model& model = session.model();
  const ModelConfig& c = model.config;
  const std::string name =
      fmt::format("dex {} {}{}, {} layers of {} and {}, {} heads of {}, {} ids, {}, {} threads, {}",
                  version(), what, shared_head ? " with a shared head" : "", c.num_layers,
                  c.hidden_size, c.intermediate_size, c.num_heads, c.head_dim, model.vocab,
                  name_of(model.dtype), session.threads(), cpu_name());
  return CostFile(options.costs).of(name, [&] {
    return measure_costs(model, engines, kMostAutoRows, shared_head);
  });
}

std::shared_ptr<const RowCosts> plain_costs(const ExploreOptions& options, const Session& session) {
  return round_costs(options, session, whole_model(session.model(), session.threads()), "lookup");
}

double estimated_seconds(const RowCosts& costs, double hops, bool drafts) {
  constexpr int kRows = 4;
  constexpr double kTokens = 1.6;  // a pass: Spec-Bench's figure for prompt lookup
  return hops * (drafts ? costs.seconds(kRows) / kTokens : costs.seconds(1));
}

}  // namespace dex
