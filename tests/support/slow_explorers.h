// Runs a lattice as explorers would, with toy exits.
#pragma once
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/explore/lattice.h"
#include "tests/support/toy_exits.h"

namespace dex::test {

// Keeps tokens in the cache rows, so that what a row attends
// to can be read back as a prefix and compared with the prefix the row stands for.
class SlowExplorers {
 public:
  SlowExplorers(const ToyExits& exits, int num_stages, LatticePolicy policy,
                std::vector<Token> prompt, int room)
      : exits_(exits),
        num_stages_(num_stages),
        policy_(policy),
        text_(std::move(prompt)),
        room_(room),
        lattice_(num_stages, pool_.take(int(text_.size()) - 1), text_, int(text_.size()) - 2 + room,
                 pool_),
        proposer_(exit_proposer(policy)),
        cache_(num_stages) {
    for (auto& rows : cache_)
      for (std::size_t i = 0; i + 1 < text_.size(); ++i) rows[int(i)] = text_[i];
  }

  std::vector<CommittedToken> run() {
    std::vector<CommittedToken> tokens;
    for (;;) {
      for (int k = 0; k < num_stages_; ++k) answers(k);
      for (int k = 0; k < num_stages_; ++k) lattice_.record(k, std::move(pending_[k]));
      while (const auto committed = lattice_.commit()) {
        tokens.push_back(*committed);
        if (int(tokens.size()) == room_ || !committed->numbers) return tokens;
        text_.push_back(committed->token);
      }
      peak_nodes = std::max(peak_nodes, lattice_.live_nodes());
      std::vector<Proposal> proposals;
      proposer_->propose(lattice_, proposals);
      if (drafts) drafts->propose(lattice_, proposals);
      lattice_.inject(choose(std::move(proposals), policy_, lattice_));
      peak_wave = std::max(peak_wave, int(lattice_.wave(0).size()));
    }
  }

  int peak_nodes = 0, peak_wave = 0, without_numbers = 0;
  Proposer* drafts = nullptr;
  const RowPool& pool() const { return pool_; }

 private:
  void answers(int k) {
    const RowLayout layout = lattice_.layout(k);
    const auto ids = lattice_.wave(k);
    auto& rows = cache_[k];
    REQUIRE(layout.rows() == int(ids.size()));
    for (std::size_t i = 0; i < ids.size(); ++i)
      rows[layout.cache_rows[i]] = lattice_.node(ids[i]).token;
    pending_[k].clear();
    const auto asked = lattice_.asked(k);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto seen = attended(layout, i, rows);
      REQUIRE(seen == prefix_of(ids[i]));
      REQUIRE(layout.positions[i] == int(seen.size()) - 1);
      pending_[k].push_back(exits_.answer(seen, k, policy_.answer_width(num_stages_), asked[i]));
      without_numbers += !pending_[k].back().numbers;
    }
  }

  std::vector<Token> attended(const RowLayout& layout, std::size_t i,
                              const std::map<int, Token>& rows) const {
    std::vector<Token> seen;
    for (int p = 0; p < layout.context_size[i]; ++p) seen.push_back(rows.at(layout.context[p]));
    for (int b = layout.ancestors_begin[i]; b < layout.ancestors_begin[i + 1]; ++b)
      seen.push_back(rows.at(layout.ancestors[b]));
    return seen;
  }

  std::vector<Token> prefix_of(int id) const {
    std::vector<Token> below;
    for (; lattice_.node(id).parent >= 0; id = lattice_.node(id).parent)
      below.push_back(lattice_.node(id).token);
    std::vector<Token> prefix = text_;
    prefix.insert(prefix.end(), below.rbegin(), below.rend());
    return prefix;
  }

  const ToyExits& exits_;
  int num_stages_;
  LatticePolicy policy_;
  std::vector<Token> text_;
  int room_;
  RowPool pool_;
  Lattice lattice_;
  std::unique_ptr<Proposer> proposer_;
  std::vector<std::map<int, Token>> cache_;
  std::map<int, std::vector<ExitAnswer>> pending_;
};

inline std::vector<Token> plain_text(const ToyExits& exits, int num_stages, std::vector<Token> text,
                                     int room) {
  std::vector<Token> made;
  for (; room > 0; --room) {
    made.push_back(exits.ranked(text, num_stages - 1).front());
    text.push_back(made.back());
  }
  return made;
}

}  // namespace dex::test
