// The exploration lattice as a token trie: a value with no tensors in it, replayed alike by every
// explorer.
//
// A node is one prefix: its parent's prefix and one token more. The root of the live trie is the
// **tip**, the node whose reference is committed next. A round is
//     wave(k), asked()     which rows explorer E_k advances, and what its exit is asked
//     record(k, answers)   what the exits said, for every stage
//     commit()             until it returns nothing: emits the tip's reference and collapses onto
//                          that child
//     inject(proposals)    the nodes that enter E_0 in the next round
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "common/base/token.h"
#include "common/explore/exit_answer.h"
#include "common/explore/proposer.h"
#include "common/explore/row_layout.h"
#include "common/explore/row_pool.h"

namespace dex {

struct CommittedToken {
  Token token = 0;
  int branch = 0;  // exit that first proposed it, K-1 when only the final one did; or kDraft
  int hop = 0;     // rounds between its parent's entry into E_0 and its own
  int round = 0;   // in which it was committed, from 1
  float gap = 0;   // final logits: best minus second best
  std::uint64_t hash = 0;  // of the bits of the final logits
  bool numbers = true;     // false: the final logits hold NaN, so there is no token
};

class Lattice {
 public:
  struct Node {
    int parent = -1;  // node, -1 for the tip
    Token token = 0;
    int position = 0;   // of the token in the sequence
    int row = 0;        // cache row, the same at every stage
    int wave = 0;       // round in which its row enters E_0
    int branch = 0;     // exit that proposed it, or kDraft
    int passed = 0;     // exits that have answered
    float p = 1;        // of this token after its parent, by the parent's latest exit
    ExitAnswer answer;  // of the latest exit
    std::vector<int> children;
  };

  // A sequence whose tokens before `root` are in the cache already, at the rows `context`; `root`
  // follows them and enters E_0 in round 1. No node stands past `last_position`. Takes rows from
  // the pool, which must outlive it, and in the end gives back all of the sequence's.
  Lattice(int num_stages, std::vector<std::int32_t> context, Token root, int last_position,
          RowPool& rows, int sequence = 0);
  ~Lattice();
  Lattice(const Lattice&) = delete;

  int num_stages() const { return num_stages_; }
  int round() const { return round_; }
  // nodes whose row is in this stage, parents before children
  std::span<const int> wave(int stage) const { return waves_[stage]; }
  const Node& node(int id) const { return nodes_[id]; }
  std::vector<std::vector<Token>> asked(int stage) const;  // per row: its children's tokens
  RowLayout layout(int stage) const;                       // valid until the lattice changes
  int live_nodes() const { return live_; }
  int tip() const { return tip_; }  // -1 while the tip is queued for injection
  // the committed token that the next wave begins with, when nobody had proposed it
  std::optional<Token> queued() const { return queued_; }
  bool has_child(int parent, Token token) const;
  int last_position() const { return last_position_; }
  int tip_position() const { return tip_position_; }  // of the tip's, or queued, token
  bool may_have_children(int id) const { return node(id).position < last_position_; }
  double path_probability(int id) const;  // that the node's prefix is committed

  void record(int stage, std::vector<ExitAnswer> answers);
  std::optional<CommittedToken> commit();
  void inject(std::span<const Proposal> chosen);

 private:
  int add_node(int parent, Token token, int branch);
  void drop(int id);  // with its subtree
  void release(int id);

  int num_stages_, sequence_, last_position_, tip_position_;
  int round_ = 1, live_ = 0, tip_ = -1;
  RowPool& rows_;
  std::optional<Token> queued_;
  std::vector<Node> nodes_;
  std::vector<int> free_nodes_;
  std::deque<std::vector<int>> waves_;  // waves_[k]: nodes in stage k
  std::vector<std::int32_t> context_;   // position -> cache row
};

}  // namespace dex
