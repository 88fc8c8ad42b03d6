#include "train/loop/pass_scheduler.h"

#include <algorithm>

#include "kernels/ceil_div.h"

namespace dex {
namespace {

constexpr std::size_t kStepsRead = 2;  // at most, beyond those that are taken on

}  // namespace

PassScheduler::PassScheduler(const TeacherStates& source,
                             std::function<Batch(std::int64_t step)> batch_of, int batch_size,
                             int micro_batch)
    : source_(source), batch_of_(std::move(batch_of)), reader_(std::make_unique<TaskQueue>(1)) {
  const RankLayout& layout = source.ranks().layout();
  const std::int64_t least = std::max<std::int64_t>(
      1, ceil_div<std::int64_t>(batch_size, micro_batch) / layout.replicas());
  steps_ahead_ = ceil_div<std::int64_t>(layout.passes_ahead(0) - 1, least);
}

void PassScheduler::start(std::int64_t first, std::int64_t end) {
  next_step_ = next_read_ = first;
  end_ = end;
  reads_.clear();
}

Batch PassScheduler::read_next() {
  const auto read_ahead = [&] {
    for (; next_read_ < end_ && reads_.size() < kStepsRead; ++next_read_)
      reads_.push_back(reader_->submit([this, step = next_read_] { return batch_of_(step); }));
  };
  read_ahead();
  std::future<Batch> batch = std::move(reads_.front());
  reads_.pop_front();
  read_ahead();
  return batch.get();
}

void PassScheduler::take_on() {
  Begun next;
  next.work.step = next_step_++;
  try {
    next.work.batch = read_next();
  } catch (...) {
    next.error = std::current_exception();
  }
  const RankLayout& layout = source_.ranks().layout();
  next.work.mine =
      share_of(std::int64_t(next.work.batch.micro_batches.size()), layout, layout.replica());
  steps_.push_back(std::move(next));
}

const StepWork& PassScheduler::enter() {
  while (next_step_ < end_ &&
         (steps_.empty() || next_step_ <= steps_.front().work.step + steps_ahead_))
    take_on();
  if (steps_.front().error) std::rethrow_exception(steps_.front().error);
  return steps_.front().work;
}

bool PassScheduler::begin_next() {
  for (Begun& step : steps_) {
    if (step.error) return false;  // a later pass must not take its place
    if (step.begun == step.work.mine.size()) continue;
    const auto next = std::size_t(step.work.mine.begin + step.begun++);
    in_flight_.push_back(source_.begin(step.work.batch.micro_batches[next]));
    return true;
  }
  return false;
}

void PassScheduler::begin_ahead() {
  while (in_flight_.size() < source_.ahead() && begin_next()) {
  }
}

HiddenRows PassScheduler::next() {
  begin_ahead();
  HiddenRows oldest = source_.finish(std::move(in_flight_.front()));
  in_flight_.pop_front();
  return oldest;
}

void PassScheduler::leave() { steps_.pop_front(); }

}  // namespace dex
