#include "train/feed.h"

#include <algorithm>

namespace dex {

Feed::Feed(const HiddenSource& source, std::function<std::vector<Sample>(std::int64_t step)> samples_of,
           int batch_size, int micro_batch)
    : source_(source), samples_of_(std::move(samples_of)), micro_batch_(micro_batch) {
  const RankLayout& layout = source.ranks().layout();
  const std::int64_t passes_ahead = layout.pipeline > 1 ? layout.pipeline : 0;
  const std::int64_t least =
      std::max<std::int64_t>(1, quotient_up(batch_size, micro_batch) / layout.replicas());
  steps_ahead_ = quotient_up(passes_ahead, least);
}

void Feed::start(std::int64_t first, std::int64_t end) {
  next_step_ = first;
  end_ = end;
}

void Feed::take_on() {
  Begun next;
  next.work.step = next_step_;
  next.work.samples = samples_of_(next_step_++);
  for (const Sample& sample : next.work.samples) {
    next.work.rows += loss_rows(sample);
    next.work.tokens += pass_tokens(sample);
  }
  if (next.work.rows > 0)
    next.work.micro_batches = quotient_up(static_cast<std::int64_t>(next.work.samples.size()), micro_batch_);
  const RankLayout& layout = source_.ranks().layout();
  next.work.mine = share_of(next.work.micro_batches, layout, layout.replica());
  steps_.push_back(std::move(next));
}

const StepWork& Feed::enter() {
  while (next_step_ < end_ &&
         (steps_.empty() || next_step_ <= steps_.front().work.step + steps_ahead_))
    take_on();
  return steps_.front().work;
}

std::span<const Sample> Feed::micro_batch_of(const StepWork& work, std::int64_t index) const {
  const std::int64_t begin = index * micro_batch_, count = static_cast<std::int64_t>(work.samples.size());
  return std::span(work.samples)
      .subspan(static_cast<std::size_t>(begin),
               static_cast<std::size_t>(std::min(micro_batch_, count - begin)));
}

bool Feed::begin_next() {
  for (Begun& step : steps_) {
    if (step.begun == step.work.mine.size()) continue;
    in_flight_.push_back(source_.begin(micro_batch_of(step.work, step.work.mine.begin + step.begun++)));
    return true;
  }
  return false;
}

void Feed::begin_ahead() {
  while (in_flight_.size() < source_.ahead() && begin_next()) {
  }
}

HiddenRows Feed::next() {
  begin_ahead();
  HiddenRows oldest = source_.finish(std::move(in_flight_.front()));
  in_flight_.pop_front();
  return oldest;
}

void Feed::leave() { steps_.pop_front(); }

}  // namespace dex
