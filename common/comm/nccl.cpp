#include "common/comm/nccl.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>

namespace dex {
namespace {

constexpr int kBlocks = 4;  // of a GPU, for a message

}  // namespace

void prepare_nccl() {
  // Else threads of its own would end the process where a peer is lost, or keep it from ending. We
  // wait by our own clock and say who it was.
  setenv("TORCH_NCCL_BLOCKING_WAIT", "1", /*replace=*/1);
  // A queue for each group's work, or one waits for another.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*replace=*/0);
}

c10::intrusive_ptr<c10d::Backend> nccl_group(const RankEnvironment& place,
                                             const c10::intrusive_ptr<c10d::Store>& store,
                                             const std::string& name) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  // A send holds its blocks until it is received: those of all peers must leave room for receives.
  options->config.maxCTAs = kBlocks;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(
      c10::make_intrusive<c10d::PrefixStore>(name, store), place.rank, place.world, options);
}

}  // namespace dex
