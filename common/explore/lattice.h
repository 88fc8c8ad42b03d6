// The exploration lattice as a token trie: a value with no tensors in it, replayed alike by every
// explorer.
//
// A node is one prefix: its parent's prefix and one token more. The root of the live trie is the
// **tip**, the node whose reference is committed next. A round is
//     wave(k), asked()     which rows explorer E_k advances, and what its exit is asked
//     record(k, answers)   what the exits said, for every stage
//     commit()             until it returns nothing: emits the tip's reference and collapses onto
//                          that child
//     inject()             chooses the nodes that enter E_0 in the next round
// No policy can change a committed token, only the round in which it comes.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "common/base/token.h"
#include "common/explore/exit_answer.h"
#include "common/explore/row_layout.h"

namespace dex {

enum class Expand : std::uint8_t { full, budget };

struct LatticePolicy {
  Expand expand = Expand::budget;
  int rows = 8;   // budget: new rows per round, R >= 1
  int width = 8;  // budget: ranked tokens taken from an exit
  // full: an exit proposes its best token that is not yet a child (paper, Section 3.3)
  bool decs = true;
  bool single_exit = false;  // full: only the first exit proposes (paper, Section 4.1)

  void check(int num_stages) const;  // Error(usage) when such a lattice cannot be
  int answer_width(int num_stages) const { return expand == Expand::full ? num_stages : width; }
  int max_nodes(int num_stages) const;  // nodes alive at once, at most
};

struct CommittedToken {
  Token token = 0;
  int branch = 0;          // exit that first proposed it; K-1 when only the final one did
  int hop = 0;             // rounds between its parent's entry into E_0 and its own
  int round = 0;           // in which it was committed, from 1
  float gap = 0;           // final logits: best minus second best
  std::uint64_t hash = 0;  // of the bits of the final logits
};

class Lattice {
 public:
  struct Node {
    int parent = -1;  // node, -1 for the tip
    Token token = 0;
    int position = 0;   // of the token in the sequence
    int row = 0;        // cache row, the same at every stage
    int wave = 0;       // round in which its row enters E_0
    int branch = 0;     // exit that proposed it
    int passed = 0;     // exits that have answered
    float p = 1;        // of this token after its parent, by the parent's latest exit
    ExitAnswer answer;  // of the latest exit
    std::vector<int> children;
  };

  // `context_size` tokens are in the cache already, at rows equal to their positions; `root`
  // follows them and enters E_0 in round 1. No node stands past `last_position`.
  Lattice(int num_stages, LatticePolicy policy, int context_size, Token root, int last_position);

  int round() const { return round_; }
  // nodes whose row is in this stage, parents before children
  std::span<const int> wave(int stage) const;
  const Node& node(int id) const { return nodes_[id]; }
  std::vector<std::vector<Token>> asked(int stage) const;  // per row: its children's tokens
  RowLayout layout(int stage) const;                       // valid until the lattice changes
  int live_nodes() const { return live_; }
  int tip() const { return tip_; }  // -1 while the tip is queued for injection

  void record(int stage, std::vector<ExitAnswer> answers);
  std::optional<CommittedToken> commit();
  void inject();

 private:
  struct Candidate {
    double p;
    int parent, branch, rank;
    Token token;
  };

  int add_node(int parent, Token token, int branch, float p);
  void drop(int id);  // with its subtree
  void release(int id);
  bool has_child(int parent, Token token) const;
  std::vector<Candidate> full_candidates() const;
  std::vector<Candidate> budget_candidates() const;
  double path_probability(int id) const;

  int num_stages_;
  LatticePolicy policy_;
  int last_position_, round_ = 1, live_ = 0, tip_ = -1, tip_position_;
  std::optional<Token> queued_;  // the committed token that nobody had proposed: enters E_0 first
  std::vector<Node> nodes_;
  std::vector<int> free_nodes_;
  std::set<int> free_rows_;  // below next_row_
  int next_row_;
  std::deque<std::vector<int>> waves_;  // waves_[k]: nodes in stage k
  std::vector<std::int32_t> context_;   // position -> cache row
};

}  // namespace dex
