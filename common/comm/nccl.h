// What carries tensors between GPUs of different processes: NCCL behind the interface of libtorch's
// process groups. A build without CUDA has a stand-in.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

#include "common/comm/rank_environment.h"

namespace dex {

// Sets what NCCL and CUDA read from the environment. Before there are threads.
void prepare_nccl();

// Two ranks connect when they first send to each other. Groups of one store need different names.
// Error(usage) in a build without CUDA.
c10::intrusive_ptr<c10d::Backend> nccl_group(const RankEnvironment& place,
                                             const c10::intrusive_ptr<c10d::Store>& store,
                                             const std::string& name);

}  // namespace dex
