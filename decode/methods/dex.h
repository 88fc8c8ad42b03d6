// Depth exploration (paper, Algorithm 1): an explorer for each depth, each in a thread of this
// process.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/model/adapter.h"
#include "common/model/head_use.h"
#include "decode/methods/method.h"

namespace dex {

constexpr int kLookup = 8;         // tokens of a drafted block
constexpr int kMostAutoRows = 32;  // what auto may take

struct ExploreOptions {
  std::string expand = "budget", rows = "auto", head = "auto", devices;
  int width = 8;
  std::optional<int> lookup;  // none: kLookup, or 0 in `full`
  bool no_decs = false, single_exit = false;
  std::filesystem::path costs;  // of a CostFile; empty: the user's own
  std::string asked_by;         // the first option given that means exploration alone

  LatticePolicy policy() const;         // Error(usage) on a contradiction
  LatticePolicy lookup_policy() const;  // of decoding with drafts alone
  bool auto_rows() const;               // measured costs say how many
  int most_rows() const;
  // Cores by explorer, one each; empty: the system places them. Error(usage).
  std::vector<int> cores(int num_stages) const;
};

Method dex_method(ExploreOptions defaults = {});
Method dex_method(std::shared_ptr<ExploreOptions> options);

// Exit adapters by stage; null where a depth has none.
using Adapters = std::vector<std::unique_ptr<Adapter>>;

using DraftMaker = std::function<std::unique_ptr<Proposer>()>;

DraftMaker drafts_of(const LatticePolicy& policy);  // prompt lookup, where it is asked for

// Each explorer has `threads` of its own. `cores` binds explorer k to core cores[k % size]; empty
// leaves it to the system. `drafts`, if given, proposes beside the exits. All that is passed by
// reference must outlive the decoder.
std::unique_ptr<Decoder> dex_decoder(const Model& model, const Adapters& adapters,
                                     LatticePolicy policy, int threads, std::vector<int> cores,
                                     DraftMaker drafts = nullptr,
                                     HeadUse head = HeadUse::automatic);

}  // namespace dex
