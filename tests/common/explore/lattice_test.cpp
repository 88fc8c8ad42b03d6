#include "common/explore/lattice.h"

#include <bit>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "common/base/error.h"
#include "common/explore/readiness.h"
#include "tests/support/toy_exits.h"

namespace dex {
namespace {

using test::ToyExits;

constexpr LatticePolicy kFull{.expand = Expand::full};

// Runs a lattice as explorers would, but keeps tokens in the cache rows, so that what a row attends
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
        lattice_(num_stages, pool_.take(int(text_.size()) - 1), text_.back(),
                 int(text_.size()) - 2 + room, pool_),
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
  const Proposer* drafts = nullptr;
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

std::vector<Token> plain_text(const ToyExits& exits, int num_stages, std::vector<Token> text,
                              int room) {
  std::vector<Token> made;
  for (; room > 0; --room) {
    made.push_back(exits.ranked(text, num_stages - 1).front());
    text.push_back(made.back());
  }
  return made;
}

std::vector<Token> ids(const std::vector<CommittedToken>& tokens) {
  std::vector<Token> ids;
  for (const auto& t : tokens) ids.push_back(t.token);
  return ids;
}

// The paper's numbering: the root slot is 1; exit k answers slot s at node s << k; the row fed with
// that answer opens slot 2 (s << k) + 1.
std::map<int, std::uint32_t> slots_of(const Lattice& lattice, int num_stages) {
  std::map<int, std::uint32_t> slots;
  for (int k = num_stages - 1; k >= 0; --k)  // deeper waves are older: parents come first
    for (int id : lattice.wave(k)) {
      const auto& node = lattice.node(id);
      slots[id] = node.parent < 0 ? 1 : ((slots.at(node.parent) << node.branch) << 1) | 1;
    }
  return slots;
}

// Every answer of every row is another token, so no proposal repeats: branch k of any slot is exit
// k's own token.
std::vector<ExitAnswer> distinct_answers(const Lattice& lattice, int k, int num_stages,
                                         Token& next) {
  std::vector<ExitAnswer> answers;
  for (const auto& asked : lattice.asked(k)) {
    ExitAnswer a;
    for (int i = 0; i < num_stages; ++i) a.tokens.push_back(next++);
    a.probabilities.assign(a.tokens.size(), 0.1f);
    a.asked.assign(asked.size(), 0.1f);
    a.reference = a.tokens.front();
    answers.push_back(std::move(a));
  }
  return answers;
}

}  // namespace

TEST_CASE(
    "the full lattice has the paper's nodes, rounds, commits and collapses for every K and "
    "branch") {
  for (int K = 1; K <= 8; ++K)
    for (int branch = 0; branch < K; ++branch) {
      CAPTURE(K, branch);
      RowPool pool;
      Lattice lattice(K, {}, 0, 1000, pool);
      const auto exits = exit_proposer(kFull);
      const auto inject = [&] {
        std::vector<Proposal> proposals;
        exits->propose(lattice, proposals);
        lattice.inject(choose(std::move(proposals), kFull, lattice));
      };
      Token next = 1;
      for (int round = 1; round <= K; ++round) {
        const auto slots = slots_of(lattice, K);
        std::set<std::uint32_t> nodes;
        for (int k = 0; k < K; ++k)
          for (int id : lattice.wave(k)) {
            const std::uint32_t n = slots.at(id) << k;
            CHECK(int(std::bit_width(n)) == round);
            CHECK(std::countr_zero(n) == k);
            CHECK(lattice.node(id).position == std::popcount(n) - 1);
            CHECK(nodes.insert(n).second);
          }
        CHECK(nodes.size() == std::size_t{1} << (round - 1));
        CHECK(lattice.wave(0).size() == (round == 1 ? 1u : std::size_t{1} << (round - 2)));
        if (round == K) break;
        for (int k = 0; k < K; ++k) lattice.record(k, distinct_answers(lattice, k, K, next));
        REQUIRE_FALSE(lattice.commit());
        inject();
      }

      for (int k = 0; k + 1 < K; ++k) lattice.record(k, distinct_answers(lattice, k, K, next));
      auto reference = distinct_answers(lattice, K - 1, K, next);
      for (int id : lattice.node(lattice.tip()).children)
        if (lattice.node(id).branch == branch) reference.front().reference = lattice.node(id).token;
      // Exit K-2 of the tip has just named its token; the child it stands for enters next round.
      const bool last_branch = branch == K - 1;
      const auto before = slots_of(lattice, K);
      lattice.record(K - 1, reference);
      const auto committed = lattice.commit();
      REQUIRE(committed);
      CHECK(committed->token == reference.front().reference);
      CHECK(committed->branch == branch);
      CHECK(committed->hop == branch + 1);
      CHECK_FALSE(lattice.commit());

      if (!last_branch) {  // kept nodes: those under the new root, with its prefix dropped
        const std::uint32_t root = (2u << branch) + 1;
        std::set<std::uint32_t> want, got;
        for (const auto& [id, slot] : before) {
          for (int k = 0; k < K; ++k)
            for (int in_wave : lattice.wave(k))
              if (in_wave == id) got.insert(slot);
          const int below = std::bit_width(slot) - std::bit_width(root);
          if (below >= 0 && (slot >> below) == root) want.insert(slot);
        }
        CHECK(got == want);
      } else {
        for (int k = 0; k < K; ++k) CHECK(lattice.wave(k).empty());
      }

      inject();
      int rounds = 1;  // until the next commit: b + 1 in steady state
      for (;; ++rounds) {
        for (int k = 0; k < K; ++k) lattice.record(k, distinct_answers(lattice, k, K, next));
        if (lattice.commit()) break;
        inject();
      }
      CHECK(rounds == branch + 1);
    }
}

TEST_CASE("answers without numbers on branches that are not committed change nothing") {
  int proposed = 0, met = 0;
  for (int K = 1; K <= 4; ++K)
    for (std::uint64_t seed = 0; seed < 20; ++seed)
      for (const LatticePolicy& policy :
           {kFull, LatticePolicy{.rows = 2, .width = 3}, LatticePolicy{.rows = 8}})
        for (int breaks_at = 0; breaks_at < K; ++breaks_at) {
          CAPTURE(K, seed, int(policy.expand), policy.rows, breaks_at);
          constexpr int kVocab = 9, kRoom = 9;
          const std::vector<Token> prompt{0};
          ToyExits exits(K, kVocab, seed);
          const auto want = plain_text(exits, K, prompt, kRoom);
          for (Token broken = 1; broken < kVocab; ++broken) {
            exits.broken = broken;
            exits.breaks_at = breaks_at;
            // the row of the last token is never read
            const auto at = std::find(want.begin(), want.end() - 1, broken);
            SlowExplorers explorers(exits, K, policy, prompt, kRoom);
            const auto got = explorers.run();
            REQUIRE_FALSE(got.empty());
            if (at == want.end() - 1) {
              CHECK(ids(got) == want);
              for (const CommittedToken& token : got) CHECK(token.numbers);
              proposed += explorers.without_numbers > 0;
            } else {
              // up to the row where plain decoding meets it, too, and no further
              const auto sound = std::size_t(at - want.begin()) + 1;
              REQUIRE(got.size() == sound + 1);
              CHECK_FALSE(got.back().numbers);
              auto begun = ids(got);
              begun.pop_back();
              CHECK(begun == std::vector<Token>(want.begin(), want.begin() + long(sound)));
              ++met;
            }
          }
        }
  CHECK(proposed > 100);
  CHECK(met > 100);
}

TEST_CASE("every policy commits plain text, attends to the right prefix and keeps its bounds") {
  for (int K : {1, 2, 3, 4, 5, 8})
    for (int vocab : {2, 3, 7})
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        const ToyExits exits(K, vocab, seed);
        const std::vector<Token> prompt{1, 0, 1};
        const int room = 24;
        const auto want = plain_text(exits, K, prompt, room);
        std::vector<LatticePolicy> policies{kFull,
                                            {.expand = Expand::full, .decs = false},
                                            {.expand = Expand::full, .single_exit = true}};
        for (int rows : {1, 2, 4, 16})
          for (int width : {1, 2, 8}) policies.push_back({.rows = rows, .width = width});
        for (const auto& policy : policies) {
          CAPTURE(K, vocab, seed, int(policy.expand), policy.rows, policy.width, policy.decs,
                  policy.single_exit);
          SlowExplorers run(exits, K, policy, prompt, room);
          CHECK(ids(run.run()) == want);
          CHECK(run.peak_nodes <= policy.max_nodes(K));
          if (policy.expand == Expand::budget)
            CHECK(run.peak_wave <= policy.rows);
          else
            CHECK(run.peak_wave <= std::max(1, (1 << K) / 4));
        }
      }
}

TEST_CASE("full-mode rounds follow from the exits' candidates alone") {
  for (int K : {1, 2, 3, 4, 6, 8})
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const ToyExits exits(K, 9, seed);
      const std::vector<Token> prompt{2};
      const int room = 40;
      const auto text = plain_text(exits, K, prompt, room);
      int decs_rounds = K, first_rounds = K, single_rounds = K;
      std::vector<Token> prefix = prompt;
      for (int i = 0; i + 1 < room; ++i) {
        std::vector<std::vector<Token>> ranked;
        for (int k = 0; k < K; ++k) ranked.push_back(exits.ranked(prefix, k));
        const auto ready = readiness(ranked);
        decs_rounds += ready.decs_branch + 1;
        first_rounds += ready.first + 1;
        single_rounds += ready.first == 0 ? 1 : K;
        prefix.push_back(text[i]);
      }
      CAPTURE(K, seed);
      CHECK(SlowExplorers(exits, K, kFull, prompt, room).run().back().round == decs_rounds);
      CHECK(SlowExplorers(exits, K, {.expand = Expand::full, .decs = false}, prompt, room)
                .run()
                .back()
                .round == first_rounds);
      CHECK(SlowExplorers(exits, K, {.expand = Expand::full, .single_exit = true}, prompt, room)
                .run()
                .back()
                .round == single_rounds);
    }
}

TEST_CASE("a budget of enough rows and width needs no more rounds than the full lattice") {
  for (int K : {3, 4, 5}) {
    const ToyExits exits(K, 8, 11);
    const int full = SlowExplorers(exits, K, kFull, {0}, 60).run().back().round;
    const int budget =
        SlowExplorers(exits, K, {.rows = 4096, .width = 8}, {0}, 60).run().back().round;
    CHECK(budget <= full);
  }
}

namespace {

// Drafts behind every row that enters E_0 next: what `text` goes on with, right or wrong.
class TextDrafts final : public Proposer {
 public:
  TextDrafts(std::vector<Token> text, int length) : text_(std::move(text)), length_(length) {}

  void propose(const Lattice& lattice, std::vector<Proposal>& proposals) const override {
    const int injected = int(proposals.size());
    for (int i = 0; i < injected; ++i)
      lay_block(i, lattice.node(proposals[i].parent).position + 2, proposals);
    if (lattice.queued()) lay_block(-1, lattice.tip_position() + 1, proposals);
  }

 private:
  // Behind proposal `follows`, or the queued token; its first token stands at `position`.
  void lay_block(int follows, std::size_t position, std::vector<Proposal>& proposals) const {
    for (int step = 0; step < length_ && position < text_.size(); ++step, ++position) {
      const double before = follows < 0 ? 1 : proposals[follows].p;
      proposals.push_back(
          {.token = text_[position], .source = kDraft, .p = before * 0.9, .follows = follows});
      follows = int(proposals.size()) - 1;
    }
  }

  std::vector<Token> text_;
  int length_;
};

}  // namespace

TEST_CASE("a block that enters in its parent's wave is committed in one round, right or wrong") {
  for (int K : {1, 2, 3, 4}) {
    const ToyExits exits(K, 7, 5);
    const std::vector<Token> prompt{1, 0, 1};
    const int room = 24;
    const auto want = plain_text(exits, K, prompt, room);
    std::vector<Token> whole = prompt;
    whole.insert(whole.end(), want.begin(), want.end());
    std::vector<Token> wrong = whole;
    for (std::size_t i = 0; i < wrong.size(); i += 3) wrong[i] = (wrong[i] + 1) % 7;
    for (const LatticePolicy& policy : {kFull, LatticePolicy{.rows = 8, .width = 3}}) {
      CAPTURE(K, int(policy.expand));
      SlowExplorers without(exits, K, policy, prompt, room), helped(exits, K, policy, prompt, room),
          misled(exits, K, policy, prompt, room);
      const TextDrafts good(whole, 3), bad(wrong, 3);
      helped.drafts = &good;
      misled.drafts = &bad;
      const auto plain = without.run(), drafted = helped.run();
      CHECK(ids(plain) == want);
      CHECK(ids(drafted) == want);
      CHECK(ids(misled.run()) == want);
      CHECK(drafted.back().round < plain.back().round);
      int in_parents_wave = 0;
      for (const CommittedToken& t : drafted) {
        if (t.branch != kDraft) continue;
        CHECK(t.hop == 0);
        ++in_parents_wave;
      }
      CHECK(in_parents_wave > 0);
    }
  }
}

TEST_CASE("what follows a proposal is chosen with it or not at all, parents first") {
  RowPool pool;
  const Lattice lattice(2, {}, 0, 100, pool);
  const std::vector<Proposal> proposals{{.parent = lattice.tip(), .token = 1, .p = 0.2},
                                        {.token = 2, .p = 0.2, .follows = 0},
                                        {.parent = lattice.tip(), .token = 3, .p = 0.5},
                                        {.token = 4, .p = 0.4, .follows = 2}};
  const auto chosen = choose(proposals, {.rows = 3}, lattice);
  REQUIRE(chosen.size() == 3);
  CHECK(chosen[0].token == 3);
  CHECK(chosen[1].token == 4);
  CHECK(chosen[1].follows == 0);
  CHECK(chosen[2].token == 1);
}

TEST_CASE("a sequence gives back every row it took, whenever it ends") {
  for (int room : {1, 2, 7, 24}) {
    const ToyExits exits(3, 7, 5);
    RowPool pool;
    const auto others = pool.take(5);  // of another sequence
    {
      Lattice lattice(3, pool.take(4), 1, 3 + room, pool, 1);
      CHECK(lattice.layout(0).sequence == 1);
      CHECK(lattice.layout(0).cache_rows.front() == 9);
    }
    CHECK(pool.taken() == 5);
    CHECK(pool.take() == 5);
  }
}

TEST_CASE("a token proposed twice after one prefix is a fault of the proposer") {
  RowPool pool;
  Lattice lattice(2, {}, 0, 100, pool);
  const std::vector<Proposal> twice{{.parent = lattice.tip(), .token = 1},
                                    {.parent = lattice.tip(), .token = 1}};
  CHECK_THROWS_AS(lattice.inject(twice), Error);
}

TEST_CASE("impossible lattices are refused") {
  CHECK_THROWS_AS(LatticePolicy{.rows = 0}.check(3), Error);
  CHECK_THROWS_AS(LatticePolicy{.width = 0}.check(3), Error);
  CHECK_THROWS_AS(kFull.check(40), Error);
  RowPool pool;
  CHECK_THROWS_AS(Lattice(0, {}, 0, 9, pool), Error);
}

}  // namespace dex
