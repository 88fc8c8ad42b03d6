#include "common/explore/lookup_proposer.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "common/explore/lattice.h"
#include "common/explore/match_confidence.h"
#include "common/explore/ngram_index.h"

namespace dex {
namespace {

constexpr int kBranches = 3;  // drafts behind one prefix
constexpr int kPlaces = 16;   // of the text that are looked at for them

struct Guess {
  Token token = 0;
  double p = 0;  // after its prefix
};

// A draft that may be proposed.
struct Draft {
  Proposal proposal;
  std::vector<Token> path;  // behind the committed text, itself included
  int depth = 1;            // place in its block
  int number = 0;           // in the order in which they were found

  bool operator<(const Draft& other) const {
    return std::pair(proposal.p, -number) < std::pair(other.proposal.p, -other.number);
  }
};

class LookupProposer final : public Proposer {
 public:
  LookupProposer(int length, int rows) : length_(length), rows_(rows) {}

  void propose(const Lattice& lattice, std::vector<Proposal>& proposals) override {
    read(lattice.text());
    drafts_ = {};
    found_ = 0;
    const int from_exits = proposals.size();
    for (int stage = 0; stage < lattice.num_stages(); ++stage)
      for (const int id : lattice.wave(stage))
        if (lattice.may_have_children(id)) behind_node(lattice, id, proposals);
    for (int i = 0; i < from_exits; ++i) {
      auto path = path_of(lattice, proposals[i].parent);
      path.push_back(proposals[i].token);
      behind(path, {.p = proposals[i].p, .follows = i}, 1);
    }
    if (lattice.queued()) behind({}, {}, 1);
    take_likeliest(proposals);
  }

 private:
  // Counts what the new tokens say about the guesses before them. The prompt's own are not those of
  // an answer, and do not count.
  void read(std::span<const Token> text) {
    const bool prompt = index_.text().empty();
    for (std::size_t at = index_.text().size(); at < text.size(); ++at) {
      const auto best = prompt ? std::vector<NgramIndex::Match>() : index_.matches({}, 1);
      if (!best.empty())
        confidence_.count(best.front().length,
                          index_.text()[std::size_t(best.front().next)] == text[at]);
      index_.append(text[at]);
    }
  }

  // Each what is right where those before it are wrong.
  std::vector<Guess> guesses(std::span<const Token> path) const {
    std::vector<Guess> guesses;
    double left = 1;
    for (const auto& match : index_.matches(path, kPlaces)) {
      const Token token = index_.text()[std::size_t(match.next)];
      if (std::any_of(guesses.begin(), guesses.end(),
                      [&](const Guess& g) { return g.token == token; }))
        continue;
      guesses.push_back({token, left * confidence_.of(match.length)});
      left -= guesses.back().p;
      if (int(guesses.size()) == kBranches) break;
    }
    return guesses;
  }

  static std::vector<Token> path_of(const Lattice& lattice, int id) {
    std::vector<Token> path;
    for (int at = id; at != lattice.tip(); at = lattice.node(at).parent)
      path.push_back(lattice.node(at).token);
    std::reverse(path.begin(), path.end());
    return path;
  }

  // An exit that has spoken leaves a draft what it does not give its own best token; what it
  // proposes itself is not drafted a second time.
  void behind_node(const Lattice& lattice, int id, std::vector<Proposal>& proposals) {
    const double before = lattice.path_probability(id) * left_to_drafts(lattice.node(id).answer);
    const auto path = path_of(lattice, id);
    for (const Guess& guess : guesses(path)) {
      if (lattice.has_child(id, guess.token)) continue;
      const double p = before * guess.p;
      const auto same = std::find_if(proposals.begin(), proposals.end(), [&](const Proposal& o) {
        return o.parent == id && o.token == guess.token;
      });
      if (same != proposals.end()) {
        same->p = std::max(same->p, p);
        same->drafted = guess.p;
      } else {
        add({.parent = id, .token = guess.token, .source = kDraft, .p = p, .drafted = guess.p},
            path, 1);
      }
    }
  }

  // Behind the proposal `before.follows`, or the queued token, which is on the path with
  // `before.p`.
  void behind(const std::vector<Token>& path, const Proposal& before, int depth) {
    for (const Guess& guess : guesses(path))
      add({.token = guess.token,
           .source = kDraft,
           .p = before.p * guess.p,
           .drafted = guess.p,
           .follows = before.follows},
          path, depth);
  }

  void add(const Proposal& proposal, std::vector<Token> path, int depth) {
    path.push_back(proposal.token);
    drafts_.push({proposal, std::move(path), depth, found_++});
  }

  void take_likeliest(std::vector<Proposal>& proposals) {
    for (int taken = 0; taken < rows_ && !drafts_.empty(); ++taken) {
      const Draft draft = drafts_.top();
      drafts_.pop();
      proposals.push_back(draft.proposal);
      if (draft.depth < length_)
        behind(draft.path, {.p = draft.proposal.p, .follows = int(proposals.size()) - 1},
               draft.depth + 1);
    }
  }

  int length_, rows_;
  NgramIndex index_;
  MatchConfidence confidence_;
  std::priority_queue<Draft> drafts_;  // of one call
  int found_ = 0;
};

}  // namespace

std::unique_ptr<Proposer> lookup_proposer(int length, int rows) {
  return std::make_unique<LookupProposer>(length, rows);
}

}  // namespace dex
