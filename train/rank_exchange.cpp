#include "train/rank_exchange.h"

#include <nlohmann/json.hpp>

#include "common/error.h"

namespace dex {
namespace {

std::string differences(const nlohmann::json& seen, const nlohmann::json& wanted) {
  std::string text;
  for (const auto& [key, value] : wanted.items())
    if (!seen.contains(key) || seen[key] != value)
      text += fmt::format("{}{} is {}, rank 0 has {}", text.empty() ? "" : ", ", key,
                          seen.contains(key) ? seen[key].dump() : "absent", value.dump());
  return text;
}

}  // namespace

void agree(Ranks& ranks, const nlohmann::json& mine) {
  std::string verdict;
  if (ranks.leads()) {
    for (int rank = 1; rank < ranks.layout().world; ++rank) {
      const std::string text = differences(nlohmann::json::parse(ranks.receive_text(Kind::agree, rank)), mine);
      if (text.empty()) continue;
      verdict += fmt::format("{}rank {} was asked for another run: {}", verdict.empty() ? "" : "; ", rank, text);
    }
    for (int rank = 1; rank < ranks.layout().world; ++rank) ranks.send(Kind::agree, verdict, rank);
  } else {
    ranks.send(Kind::agree, mine.dump(), 0);
    verdict = ranks.receive_text(Kind::agree, 0);
  }
  require(verdict.empty(), ExitCode::usage, "{}", verdict);
}

std::vector<AdapterWeights> exits_of_all(Ranks& ranks, const std::vector<AdapterWeights>& own, const ExitSizes& one) {
  const RankLayout& layout = ranks.layout();
  if (layout.replica() != 0) return {};
  if (!ranks.leads()) {
    if (!own.empty()) ranks.send(Kind::state, exit_vector(own), 0);
    return {};
  }
  std::vector<AdapterWeights> all = on_device(own, at::kCPU);
  for (int position = 1; position < layout.pipeline; ++position) {
    const ExitSizes theirs{layout.exits(position), one.hidden, one.width};
    if (theirs.exits == 0) continue;
    const at::Tensor vector = ranks.receive(Kind::state, layout.rank_at(0, position), {theirs.size()});
    for (AdapterWeights& exit : exits_of(vector, theirs)) all.push_back(std::move(exit));
  }
  return all;
}

}  // namespace dex
