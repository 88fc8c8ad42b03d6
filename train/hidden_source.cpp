#include "train/hidden_source.h"

#include <deque>

namespace dex {
namespace {

// Samples laid end to end. What follows a sample's last loss row cannot reach one, so it is left out.
struct Layout {
  std::vector<Token> tokens;
  std::vector<std::int64_t> begin{0};
  std::vector<std::int64_t> rows;  // loss rows, as indices into tokens
};

Layout lay_out(std::span<const Sample> samples) {
  Layout layout;
  for (const Sample& sample : samples) {
    const std::int64_t offset = layout.begin.back();
    for (std::size_t i = 1; i < sample.tokens.size(); ++i)
      if (sample.supervised[i]) layout.rows.push_back(offset + static_cast<std::int64_t>(i) - 1);
    layout.tokens.insert(layout.tokens.end(), sample.tokens.begin(),
                         sample.tokens.begin() + pass_tokens(sample));
    layout.begin.push_back(static_cast<std::int64_t>(layout.tokens.size()));
  }
  return layout;
}

}  // namespace

HiddenSource::HiddenSource(const Model& model) : HiddenSource(model, one_rank()) {}

HiddenRows HiddenSource::begin(std::span<const Sample> samples) const {
  const Layout layout = lay_out(samples);
  const at::Tensor index = at::tensor(layout.rows, at::kLong);
  const int rank = ranks_.layout().rank;
  HiddenRows result;
  result.tokens = static_cast<std::int64_t>(layout.tokens.size());
  at::Tensor x = ranks_.first()
                     ? model_.embedding->rows(layout.tokens)
                     : ranks_.receive(Kind::rows, rank - 1, {result.tokens, model_.config.hidden_size});
  for (const Stage& stage : model_.stages) {
    x = stage.forward_causal(x, layout.begin);
    result.h_RD.push_back(x.index_select(0, index));
  }
  if (ranks_.last()) {
    result.final_RD = result.h_RD.back();
    result.h_RD.pop_back();
    for (int back = 1; back < ranks_.layout().pipeline; ++back)
      ranks_.send(Kind::final_rows, result.final_RD, rank - back);
  } else {
    ranks_.send(Kind::rows, x, rank + 1);
  }
  return result;
}

HiddenRows HiddenSource::finish(HiddenRows begun) const {
  const RankLayout& layout = ranks_.layout();
  if (!ranks_.last())
    begun.final_RD = ranks_.receive(Kind::final_rows, layout.rank_at(layout.replica(), layout.pipeline - 1),
                                    begun.h_RD.front().sizes());
  return begun;
}

// The rank behind is one pass less ahead; one more than that hides the way between them.
std::size_t HiddenSource::ahead() const {
  const RankLayout& layout = ranks_.layout();
  return static_cast<std::size_t>(layout.pipeline - layout.position() + (layout.pipeline > 1));
}

void HiddenSource::each(IndexRange passes,
                        const std::function<std::span<const Sample>(std::int64_t pass)>& samples_of,
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
  return length > 1 ? static_cast<std::int64_t>(length) - 1 : 0;
}

}  // namespace dex
