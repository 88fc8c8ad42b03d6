#include "common/explore/lattice.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace dex {

Lattice::Lattice(int num_stages, std::vector<std::int32_t> context, Token root, int last_position,
                 RowPool& rows, int sequence)
    : num_stages_(num_stages),
      sequence_(sequence),
      last_position_(last_position),
      tip_position_(context.size()),
      rows_(rows),
      waves_(num_stages),
      context_(std::move(context)) {
  require(num_stages >= 1, ExitCode::bug, "a lattice of {} stages, wanted at least 1", num_stages);
  tip_ = add_node(-1, root, num_stages - 1);
  waves_.front().push_back(tip_);
}

Lattice::~Lattice() {
  for (const auto& wave : waves_)
    for (const int id : wave)
      if (id != tip_) rows_.give_back(node(id).row);  // the tip's row is of the context
  rows_.give_back(context_);
}

std::vector<std::vector<Token>> Lattice::asked(int stage) const {
  std::vector<std::vector<Token>> ids;
  for (int id : wave(stage)) {
    auto& row = ids.emplace_back();
    for (int child : node(id).children) row.push_back(node(child).token);
  }
  return ids;
}

RowLayout Lattice::layout(int stage) const {
  RowLayout layout{.sequence = sequence_};
  layout.context = context_;
  std::vector<std::int32_t> path;
  for (int id : wave(stage)) {
    path.clear();
    // The tip's row is in the context already, so a path ends below it; the tip's own path is
    // itself.
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
    // Without numbers it is most likely a wrong branch: what follows it is explored last.
    for (std::size_t c = 0; c < parent.children.size(); ++c)
      nodes_[parent.children[c]].p = parent.answer.numbers ? parent.answer.asked[c] : 0;
  }
}

std::optional<CommittedToken> Lattice::commit() {
  if (tip_ < 0 || node(tip_).passed < num_stages_) return std::nullopt;
  const Node tip = node(tip_);
  const Token reference = tip.answer.reference;
  CommittedToken committed{.token = reference,
                           .branch = num_stages_ - 1,
                           .hop = num_stages_,
                           .round = round_,
                           .gap = tip.answer.gap,
                           .hash = tip.answer.hash,
                           .numbers = tip.answer.numbers};

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

void Lattice::inject(std::span<const Proposal> chosen) {
  ++round_;
  waves_.pop_back();
  auto& wave = waves_.emplace_front();
  if (queued_) {
    tip_ = add_node(-1, *queued_, num_stages_ - 1);
    queued_.reset();
    wave.push_back(tip_);
  }
  const std::size_t first = wave.size();
  for (const Proposal& p : chosen) {
    const int parent = p.follows >= 0 ? wave[first + p.follows] : p.parent >= 0 ? p.parent : tip_;
    require(!has_child(parent, p.token), ExitCode::bug,
            "token {} is proposed for a second time after one prefix", p.token);
    wave.push_back(add_node(parent, p.token, p.source));
  }
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

int Lattice::add_node(int parent, Token token, int branch) {
  int id = nodes_.size();
  if (free_nodes_.empty()) {
    nodes_.emplace_back();
  } else {
    id = free_nodes_.back();
    free_nodes_.pop_back();
  }
  const int row = rows_.take();
  nodes_[id] = {.parent = parent,
                .token = token,
                .position = parent < 0 ? tip_position_ : node(parent).position + 1,
                .row = row,
                .wave = round_,
                .branch = branch};
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
    rows_.give_back(node(at).row);
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
