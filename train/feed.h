// The steps of a run as this rank works on them: which micro-batches are its replica's, and passes begun ahead
// of their turn, those of the next steps too, since no gradient crosses the backbone.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "data/sample.h"
#include "train/hidden_source.h"
#include "train/ranks.h"

namespace dex {

struct StepWork {
  std::int64_t step = 0;
  std::vector<Sample> samples;        // of all replicas
  std::int64_t rows = 0, tokens = 0;  // of all replicas
  std::int64_t micro_batches = 0;     // of all replicas; 0 when there is no row
  IndexRange mine;
};

class Feed {
 public:
  Feed(const HiddenSource& source, std::function<std::vector<Sample>(std::int64_t step)> samples_of,
       int batch_size, int micro_batch);

  // The steps from `first` on, none begun from `end` on.
  void start(std::int64_t first, std::int64_t end);
  const StepWork& enter();  // the next step, which must be before the end
  HiddenRows next();        // of its next micro-batch of this replica
  void begin_ahead();       // what is to be begun before the next one is finished
  void leave();             // the step is done

 private:
  struct Begun {
    StepWork work;
    std::int64_t begun = 0;  // micro-batches of work.mine
  };
  void take_on();     // one more step
  bool begin_next();  // false when no pass can be begun yet
  std::span<const Sample> micro_batch_of(const StepWork& work, std::int64_t index) const;

  const HiddenSource& source_;
  std::function<std::vector<Sample>(std::int64_t step)> samples_of_;
  std::int64_t micro_batch_;
  std::int64_t steps_ahead_;  // as many as ahead() passes of the first position reach into
  std::int64_t next_step_ = 0, end_ = 0;
  std::deque<Begun> steps_;           // taken on, the first is the current one
  std::deque<HiddenRows> in_flight_;  // begun passes, in order
};

}  // namespace dex
