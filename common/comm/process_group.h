// What carries tensors between processes: libtorch's process groups behind their common interface.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

#include "common/comm/rank_environment.h"

namespace dex {

// Of what libtorch throws; a stack trace follows.
std::string first_line(const std::string& text);

// Connects all ranks, which have met in `store`. For tensors in host memory: Gloo. Throws what
// libtorch throws.
c10::intrusive_ptr<c10d::Backend> connect_process_group(
    const RankEnvironment& place, const c10::intrusive_ptr<c10d::Store>& store,
    std::chrono::milliseconds timeout);

// Sets what libtorch reads from the environment, before there are threads, and quiets its log.
void prepare_process_groups();
// For tensors on GPUs: NCCL, which connects two ranks when they first send to each other. Groups of
// one store need different names. Error(usage) in a build without CUDA.
c10::intrusive_ptr<c10d::Backend> gpu_process_group(const RankEnvironment& place,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    const std::string& name);

}  // namespace dex
