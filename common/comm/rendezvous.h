// libtorch's TCPStore with our deadlines: where ranks meet, and post what stopped them.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/comm/rank_environment.h"

namespace dex {

using Clock = std::chrono::steady_clock;

inline Clock::duration seconds_to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class RollCall;

class Rendezvous {
 public:
  // Rank 0 serves unless the launcher does. Error(temporary) when the port is in use or nobody
  // serves until `end`.
  Rendezvous(const RankEnvironment& place, Clock::time_point end);

  // Error(temporary) naming the ranks that have not come until `end`. At once, on all that are
  // there: Error(usage) naming two processes of one rank or ranks that count others, and what one
  // that does not join has said.
  void wait_for_all(Clock::time_point end);

  // Throws what a rank that does not join has said, if there is one.
  void heed();
  // Before `end` the others would wait for this rank, which has failed. It stays until they have
  // heard, for some seconds at most, if it serves.
  void give_up(const Error& error, Clock::time_point end) noexcept;

  // For a rank that will not even come, so that the others do not wait for it. Takes some seconds
  // at most, whether they are there or not.
  static void refuse(const RankEnvironment& place, ExitCode code,
                     const std::string& reason) noexcept;

  // What stopped a rank. Both take a short while at most, whatever the store's state.
  void post_failure(const std::string& text) noexcept;
  std::optional<std::string> failure_of(int rank) noexcept;

  // keys of this attempt only
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

 private:
  RankEnvironment place_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<RollCall> call_;
  std::future<void> heeding_;  // the look that has not come back
};

}  // namespace dex
