#include "train/ranks/agreement.h"

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/json_differences.h"

namespace dex {
namespace {

// The leading rank judges what each other rank says: an empty text, or what is wrong, which all
// then throw.
void judge_all(RankMessages& ranks, const std::string& mine,
               const std::function<std::string(int rank, const std::string& theirs)>& judge) {
  if (!ranks.leads()) ranks.send(Tag::agreement, mine, 0);
  std::string wrong;
  for (int rank = 1; ranks.leads() && rank < ranks.layout().world; ++rank) {
    const std::string text = judge(rank, ranks.receive_text(Tag::agreement, rank));
    if (!text.empty()) wrong += (wrong.empty() ? "" : "; ") + text;
  }
  wrong = ranks.from_leader(Tag::agreement, wrong);
  require(wrong.empty(), ExitCode::usage, "{}", wrong);
}

}  // namespace

void require_agreement(RankMessages& ranks, const nlohmann::json& mine) {
  judge_all(ranks, mine.dump(), [&](int rank, const std::string& theirs) {
    const std::string text = json_differences(nlohmann::json::parse(theirs), mine,
                                              "{} is {}, rank 0 has {}", ", ", /*both_ways=*/true);
    return text.empty() ? text : fmt::format("rank {} was asked for another run: {}", rank, text);
  });
}

void require_different(RankMessages& ranks, const std::string& what, const std::string& mine) {
  std::map<std::string, int> owner{{mine, ranks.layout().rank}};
  judge_all(ranks, mine, [&](int rank, const std::string& theirs) {
    const auto [known, fresh] = owner.emplace(theirs, rank);
    return fresh ? "" : fmt::format("rank {} has the {} of rank {}", rank, what, known->second);
  });
}

std::map<std::string, std::string> agreed_union(RankMessages& ranks, const std::string& what,
                                                const std::map<std::string, std::string>& mine) {
  using Map = std::map<std::string, std::string>;
  Map all = mine;
  if (ranks.alone()) return all;
  judge_all(ranks, nlohmann::json(mine).dump(), [&](int rank, const std::string& theirs) {
    for (const auto& [key, value] : nlohmann::json::parse(theirs).get<Map>())
      if (const auto [known, fresh] = all.emplace(key, value); known->second != value)
        return fmt::format("rank {} has {} {} for {}, ranks before it {}", rank, what, value, key,
                           known->second);
    return std::string();
  });
  return nlohmann::json::parse(ranks.from_leader(Tag::agreement, nlohmann::json(all).dump()))
      .get<Map>();
}

}  // namespace dex
