// libtorch's TCPStore with our deadlines: where ranks meet, and post what stopped them.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <optional>
#include <string>

#include "common/comm/rank_environment.h"

namespace dex {

using Clock = std::chrono::steady_clock;

inline Clock::duration seconds_to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Rendezvous {
 public:
  // Rank 0 serves unless the launcher does. Error(temporary) when the port is in use or nobody
  // serves until `end`.
  Rendezvous(const RankEnvironment& place, Clock::time_point end);

  // Error(temporary) naming the ranks that have not come until `end`.
  void wait_for_all(Clock::time_point end);

  // What stopped a rank. Both take a short while at most, whatever the store's state.
  void post_failure(const std::string& text) noexcept;
  std::optional<std::string> failure_of(int rank) noexcept;

  // keys of this attempt only
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

 private:
  RankEnvironment place_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace dex
