#include "common/explore/lattice.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "common/base/error.h"

namespace dex {

void LatticePolicy::check(int num_stages) const {
  constexpr int kMost = 4096;
  if (expand == Expand::full)
    require(num_stages <= 12, ExitCode::usage,
            "the full lattice of {} depths has 2^{} nodes; wanted at most 12 depths, or --expand "
            "budget",
            num_stages, num_stages);
  else
    require(rows >= 1 && rows <= kMost && width >= 1 && width <= kMost, ExitCode::usage,
            "a budget of {} rows and width {}, wanted 1 .. {} of each", rows, width, kMost);
}

int LatticePolicy::max_nodes(int num_stages) const {
  return expand == Expand::full ? 1 << num_stages : (rows + 1) * num_stages;
}

Lattice::Lattice(int num_stages, LatticePolicy policy, int context_size, Token root,
                 int last_position)
    : num_stages_(num_stages),
      policy_(policy),
      last_position_(last_position),
      tip_position_(context_size),
      next_row_(context_size),
      waves_(num_stages),
      context_(context_size) {
  require(num_stages >= 1, ExitCode::bug, "a lattice of {} stages, wanted at least 1", num_stages);
  policy.check(num_stages);
  std::iota(context_.begin(), context_.end(), 0);
  tip_ = add_node(-1, root, num_stages - 1, 1);
  waves_.front().push_back(tip_);
}

std::span<const int> Lattice::wave(int stage) const { return waves_[stage]; }

std::vector<std::vector<Token>> Lattice::asked(int stage) const {
  std::vector<std::vector<Token>> ids;
  for (int id : wave(stage)) {
    auto& row = ids.emplace_back();
    for (int child : node(id).children) row.push_back(node(child).token);
  }
  return ids;
}

RowLayout Lattice::layout(int stage) const {
  RowLayout layout;
  layout.context = context_;
  std::vector<std::int32_t> path;
  for (int id : wave(stage)) {
    path.clear();
    // The tip's row is in the context already, so a path ends below it; the tip itself is its own
    // branch.
    for (int at = id; at >= 0 && (at == id || at != tip_); at = node(at).parent)
      path.push_back(node(at).row);
    std::reverse(path.begin(), path.end());
    layout.add(node(id).position, node(id).position + 1 - std::int32_t(path.size()), path);
  }
  return layout;
}

void Lattice::record(int stage, std::vector<ExitAnswer> answers) {
  const auto ids = wave(stage);
  require(answers.size() == ids.size(), ExitCode::bug, "exit {} answered {} rows, wanted {}", stage,
          answers.size(), ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Node& parent = nodes_[ids[i]];
    parent.answer = std::move(answers[i]);
    parent.passed = stage + 1;
    for (std::size_t c = 0; c < parent.children.size(); ++c)
      nodes_[parent.children[c]].p = parent.answer.asked[c];
  }
}

std::optional<CommittedToken> Lattice::commit() {
  if (tip_ < 0 || node(tip_).passed < num_stages_) return std::nullopt;
  const Node tip = node(tip_);
  const Token reference = tip.answer.tokens.front();
  CommittedToken committed{reference, num_stages_ - 1, num_stages_,
                           round_,    tip.answer.gap,  tip.answer.hash};

  const int old_tip = std::exchange(tip_, -1);
  for (int child : tip.children) {
    if (node(child).token != reference) {
      drop(child);
      continue;
    }
    tip_ = child;
    nodes_[child].parent = -1;
    committed.branch = node(child).branch;
    committed.hop = node(child).wave - tip.wave;
  }
  release(old_tip);  // its row stays: it belongs to the context now
  ++tip_position_;
  if (tip_ < 0)
    queued_ = reference;
  else
    context_.push_back(node(tip_).row);
  return committed;
}

void Lattice::inject() {
  std::vector<Candidate> chosen;
  if (queued_) {
    chosen.push_back({1, -1, num_stages_ - 1, 0, *queued_});
    queued_.reset();
  }
  const bool budget = policy_.expand == Expand::budget;
  auto candidates = budget ? budget_candidates() : full_candidates();
  const auto room = budget ? std::size_t(policy_.rows) - chosen.size() : candidates.size();
  candidates.resize(std::min(candidates.size(), room));
  chosen.insert(chosen.end(), candidates.begin(), candidates.end());

  ++round_;
  waves_.pop_back();
  waves_.emplace_front();
  for (const Candidate& c : chosen) {
    const int id = add_node(c.parent, c.token, c.branch, float(c.p));
    if (c.parent < 0) tip_ = id;
    waves_.front().push_back(id);
  }
}

std::vector<Lattice::Candidate> Lattice::full_candidates() const {
  std::vector<Candidate> candidates;
  const int exits = policy_.single_exit ? std::min(1, num_stages_ - 1) : num_stages_ - 1;
  for (int k = 0; k < exits; ++k)
    for (int id : wave(k)) {
      const Node& parent = node(id);
      if (parent.position >= last_position_) continue;
      const auto& tokens = parent.answer.tokens;
      const auto fresh =
          std::find_if(tokens.begin(), tokens.end(), [&](Token t) { return !has_child(id, t); });
      if (fresh == tokens.end() || (!policy_.decs && fresh != tokens.begin())) continue;
      candidates.push_back({1, id, k, int(fresh - tokens.begin()), *fresh});
    }
  return candidates;
}

std::vector<Lattice::Candidate> Lattice::budget_candidates() const {
  std::vector<Candidate> candidates;
  for (int k = 0; k < num_stages_ - 1; ++k)
    for (int id : wave(k)) {
      const Node& parent = node(id);
      if (parent.position >= last_position_) continue;
      const double path = path_probability(id);
      for (std::size_t r = 0; r < parent.answer.tokens.size(); ++r)
        if (!has_child(id, parent.answer.tokens[r]))
          candidates.push_back(
              {path * parent.answer.probabilities[r], id, k, int(r), parent.answer.tokens[r]});
    }
  // A total order, so that every rank takes the same ones.
  const auto order = [&](const Candidate& c) {
    return std::tuple(-c.p, node(c.parent).row, c.branch, c.rank);
  };
  std::sort(candidates.begin(), candidates.end(),
            [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return candidates;
}

double Lattice::path_probability(int id) const {
  double p = 1;
  for (int at = id; at != tip_; at = node(at).parent) p *= node(at).p;
  return p;
}

bool Lattice::has_child(int parent, Token token) const {
  const auto& children = node(parent).children;
  return std::any_of(children.begin(), children.end(),
                     [&](int child) { return node(child).token == token; });
}

int Lattice::add_node(int parent, Token token, int branch, float p) {
  int id = nodes_.size();
  if (free_nodes_.empty()) {
    nodes_.emplace_back();
  } else {
    id = free_nodes_.back();
    free_nodes_.pop_back();
  }
  int row = next_row_;
  if (free_rows_.empty())
    ++next_row_;
  else
    row = free_rows_.extract(free_rows_.begin()).value();

  const int position = parent < 0 ? tip_position_ : node(parent).position + 1;
  nodes_[id] = Node{parent, token, position, row, round_, branch, 0, p, {}, {}};
  if (parent < 0)
    context_.push_back(row);
  else
    nodes_[parent].children.push_back(id);
  ++live_;
  return id;
}

void Lattice::drop(int id) {
  std::vector<int> doomed{id};
  while (!doomed.empty()) {
    const int at = doomed.back();
    doomed.pop_back();
    doomed.insert(doomed.end(), node(at).children.begin(), node(at).children.end());
    free_rows_.insert(node(at).row);
    release(at);
  }
}

void Lattice::release(int id) {
  for (auto& wave : waves_) std::erase(wave, id);
  nodes_[id] = {};
  free_nodes_.push_back(id);
  --live_;
}

}  // namespace dex
