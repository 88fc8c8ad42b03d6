// libtorch's TCPStore with our deadlines: where ranks meet and leave word of what stopped them.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <optional>
#include <string>

#include "common/rank_environment.h"

namespace dex {

using Clock = std::chrono::steady_clock;

inline Clock::duration seconds_to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class MeetingStore {
 public:
  // Rank 0 serves unless the launcher does. Error(temporary) when the port is in use or nobody serves until
  // `end`.
  MeetingStore(const RankEnvironment& place, Clock::time_point end);

  // Error(temporary) naming the ranks that have not come until `end`.
  void wait_for_all(Clock::time_point end);

  // What stopped a rank. Both take a short while at most, whatever the store's state.
  void leave_word(const std::string& text) noexcept;
  std::optional<std::string> word_of(int rank) noexcept;

  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }  // keys of this attempt only

 private:
  RankEnvironment place_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace dex
