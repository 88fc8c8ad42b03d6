// Depth exploration (paper, Algorithm 1): an explorer for each depth, each in a thread of this
// process.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "common/model/adapter.h"
#include "decode/methods/method.h"

namespace dex {

struct ExploreOptions {
  std::string expand = "budget", devices;
  int rows = 8, width = 8;
  bool no_decs = false, single_exit = false;

  LatticePolicy policy() const;  // Error(usage) on a contradiction
  // Cores by explorer, one each; empty: the system places them. Error(usage).
  std::vector<int> cores(int num_stages) const;
};

Method dex_method(ExploreOptions defaults = {});

// Exit adapters by stage; null where a depth has none.
using Adapters = std::vector<std::unique_ptr<Adapter>>;

// Each explorer has `threads` of its own. `cores` binds explorer k to core cores[k % size]; empty
// leaves it to the system. `drafts`, if given, proposes beside the exits. All that is passed by
// reference must outlive the decoder.
std::unique_ptr<Decoder> dex_decoder(const Model& model, const Adapters& adapters,
                                     LatticePolicy policy, int threads, std::vector<int> cores,
                                     std::shared_ptr<const Proposer> drafts = nullptr);

}  // namespace dex
