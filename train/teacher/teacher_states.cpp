#include "train/teacher/teacher_states.h"

#include <deque>
#include <utility>

namespace dex {
namespace {

at::Tensor loss_row_index(const Sample& sample) {
  std::vector<std::int64_t> rows;
  for (std::size_t i = 1; i < sample.tokens.size(); ++i)
    if (sample.supervised[i]) rows.push_back(std::int64_t(i) - 1);
  return at::tensor(rows, at::kLong);
}

at::Tensor embedded(const Model& model, const Sample& sample) {
  return model.embedding->rows(std::span(sample.tokens).first(pass_tokens(sample)));
}

}  // namespace

TeacherStates::TeacherStates(const Model& model) : TeacherStates(model, one_rank()) {}

// What follows the last loss row cannot reach one, so it is left out.
std::vector<at::Tensor> TeacherStates::pass(const Sample& sample, at::Tensor& x_TD) const {
  const at::Tensor index = loss_row_index(sample).to(model_.device);
  std::vector<at::Tensor> rows;
  for (const Stage& stage : model_.stages) {
    x_TD = stage.forward_causal(x_TD);
    rows.push_back(x_TD.index_select(0, index));
  }
  return rows;
}

std::vector<at::Tensor> TeacherStates::cached_pass(const Sample& sample) const {
  const std::string key = key_of(sample);
  at::Tensor states = cache_->find(key);
  if (!states.defined()) {
    at::Tensor x_TD = embedded(model_, sample);
    states = at::stack(pass(sample, x_TD));
    cache_->add(key, states.cpu());
  }
  return states.to(model_.device).unbind();
}

HiddenRows TeacherStates::begin(std::span<const Sample> samples) const {
  const int rank = ranks_.layout().rank;
  HiddenRows result;
  for (const Sample& sample : samples) result.tokens += pass_tokens(sample);
  at::Tensor arrived;
  if (!ranks_.first())
    arrived = ranks_.receive(Tag::rows, rank - 1, {result.tokens, model_.config.hidden_size});
  std::vector<std::vector<at::Tensor>> rows(model_.stages.size());  // by stage, then sample
  std::vector<at::Tensor> leaving;
  std::int64_t done = 0;
  for (const Sample& sample : samples) {
    const std::int64_t first = std::exchange(done, done + pass_tokens(sample));
    at::Tensor x_TD;
    if (!cache_) x_TD = ranks_.first() ? embedded(model_, sample) : arrived.slice(0, first, done);
    const auto own = cache_ ? cached_pass(sample) : pass(sample, x_TD);
    for (std::size_t k = 0; k < own.size(); ++k) rows[k].push_back(own[k]);
    if (!ranks_.last()) leaving.push_back(x_TD);
  }
  for (const auto& of_samples : rows) result.h_RD.push_back(at::cat(of_samples));
  if (ranks_.last()) {
    result.final_RD = result.h_RD.back();
    result.h_RD.pop_back();
    for (int back = 1; back < ranks_.layout().pipeline; ++back)
      ranks_.send(Tag::final_rows, result.final_RD, rank - back);
  } else {
    ranks_.send(Tag::rows, at::cat(leaving), rank + 1);
  }
  return result;
}

HiddenRows TeacherStates::finish(HiddenRows begun) const {
  const RankLayout& layout = ranks_.layout();
  if (!ranks_.last())
    begun.final_RD =
        ranks_.receive(Tag::final_rows, layout.rank_at(layout.replica(), layout.pipeline - 1),
                       begun.h_RD.front().sizes());
  return begun;
}

std::size_t TeacherStates::ahead() const {
  const RankLayout& layout = ranks_.layout();
  return std::size_t(layout.passes_ahead(layout.pipeline_rank()));
}

void TeacherStates::each(
    IndexRange passes, const std::function<std::span<const Sample>(std::int64_t pass)>& samples_of,
    const std::function<void(std::int64_t pass, const HiddenRows& rows)>& use) const {
  std::deque<HiddenRows> begun;
  for (std::int64_t next = passes.begin, done = passes.begin; done < passes.end; ++done) {
    while (next < passes.end && begun.size() < ahead()) begun.push_back(begin(samples_of(next++)));
    const HiddenRows oldest = finish(std::move(begun.front()));
    begun.pop_front();
    use(done, oldest);
  }
}

std::int64_t loss_rows(const Sample& sample) {
  std::int64_t count = 0;
  for (std::size_t i = 1; i < sample.supervised.size(); ++i) count += sample.supervised[i] != 0;
  return count;
}

std::int64_t pass_tokens(const Sample& sample) {
  std::size_t length = sample.tokens.size();
  while (length > 1 && !sample.supervised[length - 1]) --length;
  return length > 1 ? std::int64_t(length) - 1 : 0;
}

}  // namespace dex
