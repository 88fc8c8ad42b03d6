#include "common/model/exit.h"

#include <algorithm>
#include <array>

#include "common/base/error.h"
#include "kernels/topk_tokens.h"

namespace dex {

Exit::Exit(const Head& head, const Adapter* adapter, int depth)
    : head_(head), adapter_(adapter), depth_(depth) {}

std::vector<ExitAnswer> Exit::read(const at::Tensor& h, int width,
                                   const std::vector<std::vector<Token>>& asked,
                                   const std::vector<std::int32_t>& positions,
                                   ThreadPool& pool) const {
  const auto rows = std::size_t(h.size(0));
  if (rows == 0) return {};
  const at::Tensor logits = head_.logits(adapter_ ? adapter_->induce(h, pool) : h, pool);
  width = std::min(width, head_.vocab());
  const auto w = std::size_t(width);

  std::vector<Token> tokens(rows * w), asked_flat;
  std::vector<std::int32_t> asked_begin{0};
  for (const auto& ids : asked) {
    asked_flat.insert(asked_flat.end(), ids.begin(), ids.end());
    asked_begin.push_back(std::int32_t(asked_flat.size()));
  }
  std::vector<float> probabilities(rows * w), asked_probabilities(asked_flat.size()), gaps(rows);
  std::vector<std::uint64_t> hashes(rows);
  const auto has_nan = std::make_unique<bool[]>(rows);
  cpu::topk_tokens({.logits = logits.data_ptr<float>(),
                    .rows = int(rows),
                    .vocab = head_.vocab(),
                    .width = width,
                    .tokens = tokens.data(),
                    .probabilities = probabilities.data(),
                    .asked = asked_flat.data(),
                    .asked_begin = asked_begin.data(),
                    .asked_probabilities = asked_probabilities.data(),
                    .gaps = gaps.data(),
                    .hashes = hashes.data(),
                    .has_nan = has_nan.get()},
                   pool);

  std::vector<ExitAnswer> answers(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    require(!has_nan[i], ExitCode::io,
            "the model gives no numbers: the logits at depth {}, position {} hold NaN", depth_,
            positions[i]);
    answers[i].tokens.assign(tokens.begin() + long(i * w), tokens.begin() + long((i + 1) * w));
    answers[i].probabilities.assign(probabilities.begin() + long(i * w),
                                    probabilities.begin() + long((i + 1) * w));
    answers[i].asked.assign(asked_probabilities.begin() + asked_begin[i],
                            asked_probabilities.begin() + asked_begin[i + 1]);
    answers[i].gap = gaps[i];
    answers[i].hash = hashes[i];
  }
  return answers;
}

}  // namespace dex
