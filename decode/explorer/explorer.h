// E_k: one stage, its cache and its exit, run on one device (paper, Algorithm 1). Every explorer
// replays the same lattice from the same answers; there is no coordinator.
#pragma once
#include <span>

#include "common/comm/transport.h"
#include "common/model/exit.h"
#include "decode/decoder.h"

namespace dex {

class Explorer {
 public:
  Explorer(const Model& model, const Adapter* adapter, LatticePolicy policy, int stage,
           int threads);

  // The whole text, in step with the other explorers. All of them return the same tokens; only
  // stage 0 calls `on_token`.
  DecodeResult generate(std::span<const Token> prompt, const Limits& limits, Transport& peers,
                        const OnToken& on_token);

 private:
  void prefill(std::span<const Token> prompt, std::span<const std::int32_t> context, KvCache& cache,
               Transport& peers);
  at::Tensor rows_in(const Lattice& lattice, Transport& peers) const;
  void expand(Lattice& lattice, at::Tensor& rows, KvCache& cache, Transport& peers);
  void rows_out(const Lattice& lattice, const std::vector<int>& nodes, const at::Tensor& rows,
                Transport& peers) const;

  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == model_.depths.num_stages(); }

  const Model& model_;
  Exit exit_;
  LatticePolicy policy_;
  int stage_;
  ThreadPool pool_;
};

}  // namespace dex
