// The steps of a run as this rank works on them: which micro-batches are its replica's, and passes
// begun ahead of their turn, those of the next steps too, since no gradient crosses the backbone. A
// thread of its own reads the samples of the next steps, so that nobody waits for a slow disk.
#pragma once
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>

#include "data/task_queue.h"
#include "train/loop/batch.h"
#include "train/ranks/rank_messages.h"
#include "train/teacher/teacher_states.h"

namespace dex {

struct StepWork {
  std::int64_t step = 0;
  Batch batch;
  IndexRange mine;  // of batch.micro_batches
};

class PassScheduler {
 public:
  // `batch_of` is called by the reading thread, for one step after the other; what it throws comes
  // out of enter() of that step. To be moved before start() only.
  PassScheduler(const TeacherStates& source, std::function<Batch(std::int64_t step)> batch_of,
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
    std::int64_t begun = 0;    // micro-batches of work.mine
    std::exception_ptr error;  // what its reading threw, for enter()
  };
  void take_on();  // one more step
  Batch read_next();
  bool begin_next();  // false when no pass can be begun yet

  const TeacherStates& source_;
  std::function<Batch(std::int64_t step)> batch_of_;
  std::int64_t steps_ahead_;  // as many as ahead() passes of the first pipeline rank reach into
  std::int64_t next_step_ = 0, end_ = 0;
  std::deque<Begun> steps_;           // taken on, the first is the current one
  std::deque<HiddenRows> in_flight_;  // begun passes, in order

  std::int64_t next_read_ = 0;
  std::deque<std::future<Batch>> reads_;  // of the next steps, in order
  std::unique_ptr<TaskQueue> reader_;     // the last member: it stops first
};

}  // namespace dex
