// Who has come to a rendezvous. Each rank leaves a claim in the store and renews it while it waits
// for the others. So a second process of one rank, and ranks that count others, are seen at once,
// and by all: whoever finds such a thing posts it there.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/comm/rank_environment.h"

namespace dex {

// Calls to the store may hang: all of these are for a thread that is given up on (within.h).
class RollCall {
 public:
  RollCall(c10::intrusive_ptr<c10d::Store> store, const RankEnvironment& place);

  // Claims the rank, looks who is there, and returns the ranks that are missing; to be called again
  // until there are none. Error(usage) when a process with the same rank waits, too, or another
  // rank counts other ranks; Error(temporary) when this rank has joined before; and the error that
  // another rank has posted.
  std::vector<int> look();

  // Throws what was posted, if anything was.
  void heed();

  // Of a rank that will not join: the others end with this, unless something was posted before.
  void refuse(ExitCode code, const std::string& reason);

  // Waits a moment for another process with this rank to show that it waits for the others. Posts
  // and throws what look() does, or returns who has joined as this rank.
  std::optional<std::string> twin();

  // Whether all others have heard what was posted: their store must not go before.
  bool all_have_heard();

 private:
  struct Claim;
  void claim();
  void renew();
  void hold(bool joined);
  void compare(int rank);
  bool renewed(const std::string& seen);
  [[noreturn]] void twice(const Claim& other);
  [[noreturn]] void stop(ExitCode code, const std::string& reason);
  void post(ExitCode code, const std::string& reason);
  void count_as_told();

  std::string me() const;
  std::string text(bool joined) const;
  // What is there in the end: `wanted` if before it was `expected`, "" for nothing.
  std::string replace(const std::string& expected, const std::string& wanted);
  std::string read(const std::string& key);

  c10::intrusive_ptr<c10d::Store> store_;
  RankEnvironment place_;
  std::string id_, host_, mine_;  // id_: of this claim, in all the world; mine_: "" until claimed
  int beat_ = 0;
  std::atomic<bool> told_ = false;
  std::chrono::steady_clock::time_point renewed_;
  std::vector<int> missing_;
};

}  // namespace dex
