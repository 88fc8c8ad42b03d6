#include "train/hidden_source.h"

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
    std::size_t length = 0;
    for (std::size_t i = 1; i < sample.tokens.size(); ++i)
      if (sample.supervised[i]) {
        layout.rows.push_back(offset + static_cast<std::int64_t>(i) - 1);
        length = i;
      }
    layout.tokens.insert(layout.tokens.end(), sample.tokens.begin(), sample.tokens.begin() + static_cast<std::ptrdiff_t>(length));
    layout.begin.push_back(static_cast<std::int64_t>(layout.tokens.size()));
  }
  return layout;
}

}  // namespace

HiddenRows HiddenSource::rows(std::span<const Sample> samples) const {
  const Layout layout = lay_out(samples);
  const at::Tensor index = at::tensor(layout.rows, at::kLong);
  HiddenRows result;
  result.tokens = static_cast<std::int64_t>(layout.tokens.size());
  at::Tensor x = model_.embedding->rows(layout.tokens);
  for (const Stage& stage : model_.stages) {
    x = stage.forward_causal(x, layout.begin);
    result.h_RD.push_back(x.index_select(0, index));
  }
  result.final_RD = result.h_RD.back();
  result.h_RD.pop_back();
  return result;
}

std::int64_t loss_rows(const Sample& sample) {
  std::int64_t count = 0;
  for (std::size_t i = 1; i < sample.supervised.size(); ++i) count += sample.supervised[i] != 0;
  return count;
}

}  // namespace dex
