// What carries tensors between processes: libtorch's process groups behind their common interface.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

#include "common/rank_environment.h"

namespace dex {

// Connects all ranks, which have met in `store`. For tensors in host memory: Gloo. Throws what libtorch throws.
c10::intrusive_ptr<c10d::Backend> connect_process_group(const RankEnvironment& place,
                                                        const c10::intrusive_ptr<c10d::Store>& store,
                                                        std::chrono::milliseconds timeout);

}  // namespace dex
