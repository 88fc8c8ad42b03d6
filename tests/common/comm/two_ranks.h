// Two ranks of libtorch's process groups as threads of one process.
#pragma once
#include <future>
#include <memory>

#include "common/comm/c10d_transport.h"
#include "tests/support/port.h"

namespace dex::test {

struct TwoRanks {
  std::unique_ptr<C10dTransport> first, second;

  TwoRanks() {
    const auto port = std::uint16_t(test::Port().number());
    const auto join = [port](int rank) {
      return C10dTransport::join({.rank = rank,
                                  .world = 2,
                                  .local_rank = rank,
                                  .local_world = 2,
                                  .address = "127.0.0.1",
                                  .port = port},
                                 30);
    };
    auto other = std::async(std::launch::async, join, 1);
    first = join(0);
    second = other.get();
  }
};

}  // namespace dex::test
