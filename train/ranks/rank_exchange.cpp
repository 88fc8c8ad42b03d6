#include "train/ranks/rank_exchange.h"

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "common/base/error.h"

namespace dex {
namespace {

std::string differences(const nlohmann::json& seen, const nlohmann::json& wanted) {
  const auto value_of = [](const nlohmann::json& object, const std::string& key) {
    return object.contains(key) ? object[key].dump() : "absent";
  };
  nlohmann::json either = wanted;
  either.update(seen);
  std::string text;
  for (const auto& [key, value] : either.items())
    if (!seen.contains(key) || !wanted.contains(key) || seen[key] != wanted[key])
      text += fmt::format("{}{} is {}, rank 0 has {}", text.empty() ? "" : ", ", key,
                          value_of(seen, key), value_of(wanted, key));
  return text;
}

// The leading rank judges what each other rank says: an empty text, or what is wrong, which all
// then throw.
void judge_all(Ranks& ranks, const std::string& mine,
               const std::function<std::string(int rank, const std::string& theirs)>& judge) {
  std::string decision;
  if (ranks.leads()) {
    for (int rank = 1; rank < ranks.layout().world; ++rank) {
      const std::string text = judge(rank, ranks.receive_text(Kind::agree, rank));
      if (!text.empty()) decision += (decision.empty() ? "" : "; ") + text;
    }
    for (int rank = 1; rank < ranks.layout().world; ++rank) ranks.send(Kind::agree, decision, rank);
  } else {
    ranks.send(Kind::agree, mine, 0);
    decision = ranks.receive_text(Kind::agree, 0);
  }
  require(decision.empty(), ExitCode::usage, "{}", decision);
}

}  // namespace

void agree(Ranks& ranks, const nlohmann::json& mine) {
  judge_all(ranks, mine.dump(), [&](int rank, const std::string& theirs) {
    const std::string text = differences(nlohmann::json::parse(theirs), mine);
    return text.empty() ? text : fmt::format("rank {} was asked for another run: {}", rank, text);
  });
}

void require_different(Ranks& ranks, const std::string& what, const std::string& mine) {
  std::map<std::string, int> owner{{mine, ranks.layout().rank}};
  judge_all(ranks, mine, [&](int rank, const std::string& theirs) {
    const auto [known, fresh] = owner.emplace(theirs, rank);
    return fresh ? "" : fmt::format("rank {} has the {} of rank {}", rank, what, known->second);
  });
}

std::vector<AdapterWeights> exits_of_all(Ranks& ranks, const std::vector<AdapterWeights>& own,
                                         const ExitSizes& one) {
  const RankLayout& layout = ranks.layout();
  if (layout.replica() != 0) return {};
  if (!ranks.leads()) {
    if (!own.empty()) ranks.send(Kind::state, flat_adapters(own), 0);
    return {};
  }
  std::vector<AdapterWeights> all = on_device(own, at::kCPU);
  for (int position = 1; position < layout.pipeline; ++position) {
    const ExitSizes theirs{layout.exits(position), one.hidden, one.width};
    if (theirs.exits == 0) continue;
    const at::Tensor vector =
        ranks.receive(Kind::state, layout.rank_at(0, position), {theirs.size()});
    for (AdapterWeights& exit : adapters_of(vector, theirs)) all.push_back(std::move(exit));
  }
  return all;
}

}  // namespace dex
