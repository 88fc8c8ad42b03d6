#include "train/loss/ridge_over_ranks.h"

#include <span>

#include "train/loss/ridge_start.h"
#include "train/ranks/replica_sum.h"

namespace dex {
namespace {

// Lays the RMS of the rows that other replicas have seen behind one's own.
void share_row_sizes(RankMessages& ranks, const std::vector<std::vector<Sample>>& passes,
                     std::vector<std::vector<float>>& rms) {
  const RankLayout& layout = ranks.layout();
  const auto exits = std::int64_t(rms.size());
  at::Tensor mine = at::empty({exits, std::int64_t(rms.front().size())});
  for (std::int64_t k = 0; k < exits; ++k) mine[k].copy_(at::tensor(rms[k]));
  for (int other = 0; other < layout.replicas(); ++other)
    if (other != layout.replica())
      ranks.send(Tag::equations, mine, layout.rank_at(other, layout.pipeline_rank()));
  for (int other = 0; other < layout.replicas(); ++other) {
    if (other == layout.replica()) continue;
    const IndexRange share = share_of(std::int64_t(passes.size()), layout, other);
    std::int64_t rows = 0;
    for (std::int64_t i = share.begin; i < share.end; ++i)
      for (const Sample& sample : passes[i]) rows += loss_rows(sample);
    const at::Tensor theirs =
        ranks.receive(Tag::equations, layout.rank_at(other, layout.pipeline_rank()), {exits, rows});
    for (std::int64_t k = 0; k < exits; ++k)
      rms[k].insert(rms[k].end(), theirs[k].data_ptr<float>(), theirs[k].data_ptr<float>() + rows);
  }
}

}  // namespace

std::vector<AdapterWeights> ridge_over_ranks(
    const TeacherStates& source, const std::vector<std::vector<Sample>>& passes,
    const std::function<void(std::int64_t done, std::int64_t of)>& on_pass) {
  RankMessages& ranks = source.ranks();
  const int exits = source.model().exits();
  const auto count = std::int64_t(passes.size());
  const IndexRange mine = share_of(count, ranks.layout(), ranks.layout().replica());
  RidgeStart ridge(source.model().config, exits);
  PairwiseSum sums;
  const auto samples_of = [&](std::int64_t pass) { return std::span(passes[pass]); };
  source.each(mine, samples_of, [&](std::int64_t number, const HiddenRows& hidden) {
    if (exits > 0) {
      RidgeStart pass(source.model().config, exits);
      pass.add(hidden.h_RD, hidden.final_RD);
      sums.add(number, pass.sums().flatten());
      for (std::size_t k = 0; k < ridge.rms().size(); ++k)
        ridge.rms()[k].insert(ridge.rms()[k].end(), pass.rms()[k].begin(), pass.rms()[k].end());
    }
    on_pass(number + 1 - mine.begin, mine.size());
  });
  if (exits == 0) return {};
  if (count > 0) {
    ridge.sums().view(-1).copy_(replica_sum(ranks, Tag::equations, std::move(sums), count,
                                            ridge.sums().numel(), at::kDouble));
    share_row_sizes(ranks, passes, ridge.rms());
  }
  return ridge.solve();
}

}  // namespace dex
