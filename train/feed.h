// The steps of a run as this rank works on them: which micro-batches are its replica's, passes begun ahead of
// their turn (also those of the next steps, since no gradient crosses the backbone), and whether a step is
// still to be done.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "data/sample.h"
#include "train/hidden_source.h"
#include "train/ranks.h"

namespace dex {

struct IndexRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// The share of `count` things that a replica has: neighbours, the earlier replicas as many as any.
IndexRange share_of(std::int64_t count, const RankLayout& layout, int replica);

struct StepWork {
  std::int64_t step = 0;
  std::vector<Sample> samples;        // of all replicas
  std::int64_t rows = 0, tokens = 0;  // of all replicas
  std::int64_t micro_batches = 0;     // of all replicas; 0 when there is no row
  IndexRange mine;
};

class Feed {
 public:
  // `stop_wanted` counts on the leading rank: it decides for all, before a step; alone, also between
  // micro-batches.
  Feed(const HiddenSource& source, Ranks& ranks,
       std::function<std::vector<Sample>(std::int64_t step)> samples_of, int batch_size, int micro_batch,
       std::function<bool()> stop_wanted);

  // The steps from `first` on, none begun from `end` on.
  void start(std::int64_t first, std::int64_t end);
  const StepWork* enter();           // the next step, or null: stop before it
  std::optional<HiddenRows> next();  // of its next micro-batch of this replica, or nothing: drop the step
  void leave();                      // the step is done

 private:
  struct Begun {
    StepWork work;
    std::int64_t begun = 0;  // micro-batches of work.mine
  };
  bool decide();      // on one more step: false when it is not to be done
  bool begin_next();  // false when no pass can be begun yet
  std::span<const Sample> micro_batch_of(const StepWork& work, std::int64_t index) const;

  const HiddenSource& source_;
  Ranks& ranks_;
  std::function<std::vector<Sample>(std::int64_t step)> samples_of_;
  std::int64_t micro_batch_,
      steps_ahead_;  // steps_ahead_: as many as ahead() passes of the first position reach into
  std::function<bool()> stop_wanted_;
  std::int64_t next_step_ = 0, end_ = 0;
  bool stopped_ = false;
  std::deque<Begun> steps_;           // decided, the first is the current one
  std::deque<HiddenRows> in_flight_;  // begun passes, in order
};

}  // namespace dex
