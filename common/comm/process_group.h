// What carries bytes in host memory between processes: libtorch's Gloo behind the interface that
// all its process groups have.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

#include "common/comm/rank_environment.h"

namespace dex {

// Of what libtorch throws; a stack trace follows.
std::string first_line(const std::string& text);

// Connects all ranks, which have met in `store`. Throws what libtorch throws.
c10::intrusive_ptr<c10d::Backend> connect_process_group(
    const RankEnvironment& place, const c10::intrusive_ptr<c10d::Store>& store,
    std::chrono::milliseconds timeout);

}  // namespace dex
