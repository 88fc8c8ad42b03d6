#include "train/evaluation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/readiness.h"
#include "train/adapter_gradient.h"

namespace dex {
namespace {

constexpr std::int64_t kChunkRows = 256;

// Ranks with float32 logits whatever the head's type: logits rounded to bf16 would tie at the top in some rows of a
// hundred, and a tie is no agreement.
class Ranker {
 public:
  explicit Ranker(const Head& head) : head_(head), weight_VD_(head.matrix().plain().to(at::kFloat)) {}

  // (rows, width) ids, best first; the lowest id is the best among equals.
  at::Tensor rank(const at::Tensor& normed_RD, std::int64_t width) const {
    const at::Tensor narrowed = normed_RD.to(head_.matrix().plain().scalar_type()).to(at::kFloat);
    const at::Tensor logits_RV = at::linear(narrowed, weight_VD_);
    require(!logits_RV.isnan().any().item<bool>(), ExitCode::usage, "the logits of held-out text hold NaN");
    if (width == 1) return logits_RV.argmax(-1, /*keepdim=*/true);
    return std::get<1>(logits_RV.topk(std::min(width, logits_RV.size(1)), -1));
  }

 private:
  const Head& head_;
  at::Tensor weight_VD_;
};

struct Totals {
  explicit Totals(const DepthSet& depths) : agreements(static_cast<std::size_t>(depths.num_stages()) - 1), rounds(depths.num_stages()) {}

  std::int64_t rows = 0, first_depth = 0, stable_depth = 0, hops = 0, decs_hops = 0;
  std::vector<std::int64_t> agreements;
  RoundCount rounds;
};

// Per loss row: whether the answer it belongs to, a run of targets, ends with it.
std::vector<bool> answer_ends(std::span<const Sample> samples) {
  std::vector<bool> ends;
  for (const Sample& sample : samples)
    for (std::size_t i = 1; i < sample.tokens.size(); ++i)
      if (sample.supervised[i]) ends.push_back(i + 1 == sample.tokens.size() || !sample.supervised[i + 1]);
  return ends;
}

std::vector<Token> row_of(const at::Tensor& ranked, std::int64_t row) {
  const auto* ids = ranked.data_ptr<std::int64_t>() + row * ranked.size(1);
  return std::vector<Token>(ids, ids + ranked.size(1));
}

// ranked[k]: exit k's tokens for the same rows, the first of which is row `begin` of `ends`
void count(const std::vector<at::Tensor>& ranked, const DepthSet& depths, const std::vector<bool>& ends, std::int64_t begin,
           Totals& totals) {
  for (std::int64_t row = 0; row < ranked.back().size(0); ++row) {
    std::vector<std::vector<Token>> tokens;
    for (const at::Tensor& exit : ranked) tokens.push_back(row_of(exit, row));
    const Readiness ready = readiness(tokens);
    ++totals.rows;
    totals.rounds.add(ready, ends.at(static_cast<std::size_t>(begin + row)));
    totals.first_depth += depths.depth(ready.first);
    totals.stable_depth += depths.depth(ready.stable);
    totals.hops += ready.first + 1;
    totals.decs_hops += ready.decs_branch + 1;
    for (std::size_t k = 0; k + 1 < tokens.size(); ++k) totals.agreements[k] += tokens[k].front() == tokens.back().front();
  }
}

ExitScores scores(const Totals& totals, int num_layers) {
  const auto mean = [&](std::int64_t sum) {
    return totals.rows == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(totals.rows);
  };
  ExitScores result{.rows = totals.rows, .first_ead = mean(totals.first_depth), .stable_ead = mean(totals.stable_depth),
                    .hops = mean(totals.hops), .decs_hops = mean(totals.decs_hops), .texts = totals.rounds.texts(),
                    .rounds = totals.rounds.rounds()};
  if (result.stable_ead > 0) result.s_x = num_layers / result.stable_ead;
  for (std::int64_t agreements : totals.agreements) result.agreement.push_back(mean(agreements));
  return result;
}

at::Tensor read_out(const ExitSet& set, std::size_t k, const at::Tensor& h_RD, const Head& head) {
  if (set.adapters.empty()) return head.norm(h_RD.contiguous());
  return adapter_forward(set.adapters[k], h_RD, head.eps()).induced_unit_RD * head.norm_weight();
}

}  // namespace

std::vector<ExitScores> evaluate(const HiddenSource& source, std::span<const Sample> samples, std::span<const ExitSet> sets,
                                 int micro_batch, const std::function<void(std::int64_t)>& on_done) {
  const Model& model = source.model();
  const Ranker ranker(*model.head);
  const auto exits = static_cast<std::size_t>(model.depths.num_stages());
  std::vector<Totals> totals(sets.size(), Totals(model.depths));
  for (std::size_t done = 0; done < samples.size();) {
    const auto part = samples.subspan(done, std::min(samples.size() - done, static_cast<std::size_t>(micro_batch)));
    const HiddenRows hidden = source.all_rows(part);
    const std::vector<bool> ends = answer_ends(part);
    for (std::int64_t begin = 0; begin < hidden.final_RD.size(0); begin += kChunkRows) {
      const auto chunk = [&](const at::Tensor& x) { return x.slice(0, begin, std::min(x.size(0), begin + kChunkRows)).contiguous(); };
      const at::Tensor reference = ranker.rank(model.head->norm(chunk(hidden.final_RD)), 1);
      for (std::size_t s = 0; s < sets.size(); ++s) {
        std::vector<at::Tensor> ranked;
        for (std::size_t k = 0; k + 1 < exits; ++k)  // exit k proposes at most its (k+1)-th best
          ranked.push_back(ranker.rank(read_out(sets[s], k, chunk(hidden.h_RD[k]), *model.head), static_cast<std::int64_t>(k) + 1));
        ranked.push_back(reference);
        count(ranked, model.depths, ends, begin, totals[s]);
      }
    }
    done += part.size();
    if (on_done) on_done(static_cast<std::int64_t>(done));
  }
  std::vector<ExitScores> result;
  for (const Totals& set : totals) result.push_back(scores(set, model.config.num_layers));
  return result;
}

nlohmann::json to_json(const ExitScores& s) {
  return {{"rows", s.rows},     {"agreement", s.agreement}, {"first_ead", s.first_ead}, {"stable_ead", s.stable_ead},
          {"hops", s.hops},     {"decs_hops", s.decs_hops}, {"texts", s.texts},         {"rounds", s.rounds},
          {"rounds_per_token", s.rounds_per_token()}, {"s_x", s.s_x}};
}

ExitScores scores_of(const nlohmann::json& json) {
  return {.rows = json.at("rows"), .agreement = json.at("agreement"), .first_ead = json.at("first_ead"),
          .stable_ead = json.at("stable_ead"), .hops = json.at("hops"), .decs_hops = json.at("decs_hops"),
          .texts = json.value("texts", std::int64_t{0}), .rounds = json.value("rounds", std::int64_t{0}), .s_x = json.value("s_x", 0.0)};
}

std::string score_table(const std::vector<std::pair<std::string, ExitScores>>& lines, const std::vector<int>& depths) {
  std::string text = fmt::format("{:<10}", "exits");
  for (int depth : depths) text += fmt::format("{:>12}", fmt::format("agree @{}", depth));
  text += fmt::format("{:>12}{:>12}{:>8}{:>9}{:>11}{:>14}\n", "first EAD", "stable EAD", "S_X", "hops", "DECS hops", "rounds/token");
  for (const auto& [name, s] : lines) {
    text += fmt::format("{:<10}", name);
    for (double agreement : s.agreement) text += fmt::format("{:>12.4f}", agreement);
    text += fmt::format("{:>12.3f}{:>12.3f}{:>8.3f}{:>9.4f}{:>11.4f}{:>14.4f}\n", s.first_ead, s.stable_ead, s.s_x, s.hops, s.decs_hops,
                        s.rounds_per_token());
  }
  return text;
}

}  // namespace dex
