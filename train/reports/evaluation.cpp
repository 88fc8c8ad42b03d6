#include "train/reports/evaluation.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/error.h"
#include "common/explore/readiness.h"
#include "kernels/ceil_div.h"
#include "kernels/rank_key.h"
#include "train/loss/adapter_gradient.h"

namespace dex {
namespace {

constexpr std::int64_t kChunkRows = 256;

// The `width` best tokens of each row of logits, on the CPU.
at::Tensor best_of(const at::Tensor& logits_RV, std::int64_t width) {
  const std::int64_t rows = logits_RV.size(0), vocab = logits_RV.size(1);
  at::Tensor ids = at::empty({rows, width}, at::kLong);
  const auto* logits = logits_RV.const_data_ptr<float>();
  auto* ranked = ids.data_ptr<std::int64_t>();
  at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<RankKey> best(width, 0);
    for (std::int64_t row = begin; row < end; ++row) {
      std::fill(best.begin(), best.end(), RankKey{0});
      for (std::int64_t id = 0; id < vocab; ++id) {
        const RankKey key = rank_key(logits[row * vocab + id], int(id));
        if (key <= best.back()) continue;
        const auto place = std::lower_bound(best.begin(), best.end(), key, std::greater());
        std::copy_backward(place, best.end() - 1, best.end());
        *place = key;
      }
      std::transform(best.begin(), best.end(), ranked + row * width, token_of);
    }
  });
  return ids;
}

// Ranks with float32 logits whatever the head's type: logits rounded to bf16 would tie at the top
// in some rows of a hundred, and a tie is no agreement.
class Ranker {
 public:
  explicit Ranker(const Head& head)
      : head_(head),
        weight_VD_(head.matrix().plain().to(at::kFloat)),
        holes_(at::empty({std::int64_t(head.holes().size())}, at::kLong)) {
    std::copy(head.holes().begin(), head.holes().end(), holes_.data_ptr<std::int64_t>());
    holes_ = holes_.to(weight_VD_.device());
  }

  // (rows, width) ids, best first; the lowest id is the best among equals, on the CPU.
  at::Tensor rank(const at::Tensor& normed_RD, std::int64_t width) const {
    const at::Tensor narrowed = normed_RD.to(head_.matrix().plain().scalar_type()).to(at::kFloat);
    at::Tensor logits_RV = at::linear(narrowed, weight_VD_);
    logits_RV.index_fill_(1, holes_, kLowest);
    require(!logits_RV.isnan().any().item<bool>(), ExitCode::usage,
            "the logits of held-out text hold NaN");
    return best_of(logits_RV.cpu(), std::min(width, logits_RV.size(1)));
  }

 private:
  const Head& head_;
  at::Tensor weight_VD_, holes_;  // ids that are never emitted
};

// Sums over rows: whole numbers, exact whoever adds them. Behind the named ones the agreements by
// exit.
enum Count : std::size_t {
  kRows,
  kFirstDepth,
  kStableDepth,
  kHops,
  kDecsHops,
  kTexts,
  kRounds,
  kAgreements
};
using Counts = std::vector<std::int64_t>;

// Per loss row: whether the answer it belongs to, a run of targets, ends with it.
std::vector<bool> answer_ends(std::span<const Sample> samples) {
  std::vector<bool> ends;
  for (const Sample& sample : samples)
    for (std::size_t i = 1; i < sample.tokens.size(); ++i)
      if (sample.supervised[i])
        ends.push_back(i + 1 == sample.tokens.size() || !sample.supervised[i + 1]);
  return ends;
}

std::vector<Token> row_of(const at::Tensor& ranked, std::int64_t row) {
  const auto* ids = ranked.data_ptr<std::int64_t>() + row * ranked.size(1);
  return std::vector<Token>(ids, ids + ranked.size(1));
}

// ranked[k]: exit k's tokens for the rows of `ends`
void count(const std::vector<at::Tensor>& ranked, const DepthSet& depths,
           const std::vector<bool>& ends, Counts& counts) {
  RoundCount rounds(depths.num_stages());
  for (std::int64_t row = 0; row < ranked.back().size(0); ++row) {
    std::vector<std::vector<Token>> tokens;
    for (const at::Tensor& exit : ranked) tokens.push_back(row_of(exit, row));
    const Readiness ready = readiness(tokens);
    rounds.add(ready, ends.at(row));
    counts[kRows] += 1;
    counts[kFirstDepth] += depths.depth(ready.first);
    counts[kStableDepth] += depths.depth(ready.stable);
    counts[kHops] += ready.first + 1;
    counts[kDecsHops] += ready.decs_branch + 1;
    for (std::size_t k = 0; k + 1 < tokens.size(); ++k)
      counts[kAgreements + k] += tokens[k].front() == tokens.back().front();
  }
  counts[kTexts] += rounds.texts();
  counts[kRounds] += rounds.rounds();
}

ExitScores scores(const Counts& counts, int num_layers) {
  const auto mean = [&](std::int64_t sum) {
    return counts[kRows] == 0 ? 0.0 : double(sum) / counts[kRows];
  };
  ExitScores result{.rows = counts[kRows],
                    .first_ead = mean(counts[kFirstDepth]),
                    .stable_ead = mean(counts[kStableDepth]),
                    .hops = mean(counts[kHops]),
                    .decs_hops = mean(counts[kDecsHops]),
                    .texts = counts[kTexts],
                    .rounds = counts[kRounds]};
  if (result.stable_ead > 0) result.s_x = num_layers / result.stable_ead;
  for (std::size_t k = kAgreements; k < counts.size(); ++k)
    result.agreement.push_back(mean(counts[k]));
  return result;
}

// This rank's part of an evaluation. Each rank of a replica reads out its own exits; the first one
// has the answers of all and counts; the leading rank adds up.
class Evaluation {
 public:
  Evaluation(const TeacherStates& source, std::span<const ExitSet> sets)
      : model_(source.model()),
        ranks_(source.ranks()),
        layout_(ranks_.layout()),
        sets_(sets),
        counts_(sets.size(), Counts(kAgreements + std::size_t(model_.depths.num_stages()) - 1)) {
    if (model_.head) ranker_.emplace(*model_.head);
  }

  void add(std::span<const Sample> samples, const HiddenRows& hidden) {
    if (model_.exits() == 0) return;
    const at::Tensor own = own_answers(hidden);
    if (!ranks_.first())
      return ranks_.send(Tag::answers, own, layout_.rank_at(layout_.replica(), 0));
    std::vector<at::Tensor> parts{own};
    for (int p = 1; p < layout_.pipeline; ++p) {
      const std::int64_t width = width_of(layout_.first_exit(p), layout_.exits(p));
      if (width > 0)
        parts.push_back(ranks_.receive(Tag::answers, layout_.rank_at(layout_.replica(), p),
                                       {own.size(0), own.size(1), width}, at::kLong));
    }
    const at::Tensor all = at::cat(parts, -1), reference = ranked(hidden.final_RD, 1);
    const std::vector<bool> ends = answer_ends(samples);
    for (std::size_t s = 0; s < sets_.size(); ++s) {
      std::vector<at::Tensor> by_exit = by_exit_of(all[s]);
      by_exit.push_back(reference);
      count(by_exit, model_.depths, ends, counts_[s]);
    }
  }

  // Of all replicas, on the leading rank.
  std::vector<ExitScores> total() {
    std::vector<ExitScores> result;
    for (Counts& mine : counts_) {
      const auto size = std::int64_t(mine.size());
      if (!ranks_.leads() && ranks_.first())
        ranks_.send(Tag::counts, at::tensor(mine, at::kLong), 0);
      if (!ranks_.leads()) continue;
      for (int replica = 1; replica < layout_.replicas(); ++replica) {
        const at::Tensor theirs =
            ranks_.receive(Tag::counts, layout_.rank_at(replica, 0), {size}, at::kLong);
        for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += theirs.data_ptr<std::int64_t>()[i];
      }
      result.push_back(scores(mine, model_.config.num_layers));
    }
    return result;
  }

 private:
  // Exit k proposes at most its (k+1)-th best.
  std::int64_t width_of(int exit) const {
    return std::min<std::int64_t>(exit + 1, model_.config.vocab_size);
  }
  std::int64_t width_of(int first, int exits) const {
    std::int64_t width = 0;
    for (int exit = first; exit < first + exits; ++exit) width += width_of(exit);
    return width;
  }

  at::Tensor ranked(const at::Tensor& h_RD, std::int64_t width, const ExitSet* set = nullptr,
                    std::size_t k = 0) const {
    at::Tensor ids = at::empty({h_RD.size(0), width}, at::kLong);
    for (std::int64_t begin = 0; begin < h_RD.size(0); begin += kChunkRows) {
      const std::int64_t end = std::min(h_RD.size(0), begin + kChunkRows);
      const at::Tensor chunk = h_RD.slice(0, begin, end).contiguous();
      ids.slice(0, begin, end).copy_(ranker_->rank(read_out(set, k, chunk), width));
    }
    return ids;
  }

  at::Tensor read_out(const ExitSet* set, std::size_t k, const at::Tensor& h_RD) const {
    const Head& head = *model_.head;
    if (!set || set->adapters.empty()) return head.norm(h_RD);
    return adapter_forward(set->adapters[k], h_RD, head.eps()).induced_unit_RD * head.norm_weight();
  }

  // (sets, rows, widths of the exits side by side)
  at::Tensor own_answers(const HiddenRows& hidden) const {
    std::vector<at::Tensor> of_sets;
    for (const ExitSet& set : sets_) {
      std::vector<at::Tensor> of_exits;
      for (std::size_t k = 0; k < hidden.h_RD.size(); ++k)
        of_exits.push_back(ranked(hidden.h_RD[k], width_of(model_.share.begin + int(k)), &set, k));
      of_sets.push_back(at::cat(of_exits, -1));
    }
    return at::stack(of_sets);
  }

  std::vector<at::Tensor> by_exit_of(const at::Tensor& all) const {
    std::vector<at::Tensor> by_exit;
    std::int64_t begin = 0;
    for (int exit = 0; exit + 1 < model_.depths.num_stages(); begin += width_of(exit++))
      by_exit.push_back(all.slice(-1, begin, begin + width_of(exit)).contiguous());
    return by_exit;
  }

  const Model& model_;
  RankMessages& ranks_;
  const RankLayout& layout_;
  std::span<const ExitSet> sets_;
  std::vector<Counts> counts_;  // by set
  std::optional<Ranker> ranker_;
};

}  // namespace

std::vector<ExitScores> evaluate(
    const TeacherStates& source, std::span<const Sample> samples, std::span<const ExitSet> sets,
    int micro_batch, const std::function<void(std::int64_t done, std::int64_t of)>& on_pass) {
  RankMessages& ranks = source.ranks();
  const auto size = std::size_t(micro_batch);
  const std::int64_t passes = ceil_div<std::int64_t>(std::int64_t(samples.size()), micro_batch);
  const IndexRange mine = share_of(passes, ranks.layout(), ranks.layout().replica());
  const auto samples_of = [&](std::int64_t pass) {
    const std::size_t begin = std::size_t(pass) * size;
    return samples.subspan(begin, std::min(samples.size() - begin, size));
  };
  Evaluation evaluation(source, sets);
  source.each(mine, samples_of, [&](std::int64_t pass, const HiddenRows& hidden) {
    evaluation.add(samples_of(pass), hidden);
    if (ranks.leads()) ranks.keep_alive();
    if (on_pass) on_pass(pass + 1 - mine.begin, mine.size());
  });
  if (!ranks.leads())  // whose share is the largest
    for (std::int64_t i = 0; i < share_of(passes, ranks.layout(), 0).size(); ++i)
      ranks.keep_alive();
  return evaluation.total();
}

nlohmann::json to_json(const ExitScores& s) {
  return {{"rows", s.rows},
          {"agreement", s.agreement},
          {"first_ead", s.first_ead},
          {"stable_ead", s.stable_ead},
          {"hops", s.hops},
          {"decs_hops", s.decs_hops},
          {"texts", s.texts},
          {"rounds", s.rounds},
          {"rounds_per_token", s.rounds_per_token()},
          {"s_x", s.s_x}};
}

ExitScores scores_of(const nlohmann::json& json) {
  return {.rows = json.at("rows"),
          .agreement = json.at("agreement"),
          .first_ead = json.at("first_ead"),
          .stable_ead = json.at("stable_ead"),
          .hops = json.at("hops"),
          .decs_hops = json.at("decs_hops"),
          .texts = json.value("texts", std::int64_t{0}),
          .rounds = json.value("rounds", std::int64_t{0}),
          .s_x = json.value("s_x", 0.0)};
}

std::string score_table(const NamedScores& lines, const std::vector<int>& depths) {
  std::string text = fmt::format("{:<10}", "exits");
  for (int depth : depths) text += fmt::format("{:>12}", fmt::format("agree @{}", depth));
  text += fmt::format("{:>12}{:>12}{:>8}{:>9}{:>11}{:>14}\n", "first EAD", "stable EAD", "S_X",
                      "hops", "DECS hops", "rounds/token");
  for (const auto& [name, s] : lines) {
    text += fmt::format("{:<10}", name);
    for (double agreement : s.agreement) text += fmt::format("{:>12.4f}", agreement);
    text += fmt::format("{:>12.3f}{:>12.3f}{:>8.3f}{:>9.4f}{:>11.4f}{:>14.4f}\n", s.first_ead,
                        s.stable_ead, s.s_x, s.hops, s.decs_hops, s.rounds_per_token());
  }
  return text;
}

}  // namespace dex
