#include <algorithm>

#include "common/model/sampler.h"
#include "kernels/topk_tokens.h"

namespace dex {
namespace {

// What the kernel fills, row by row.
struct Ranking {
  Ranking(int rows, int width, const std::vector<std::vector<Token>>& asked)
      : width(width),
        tokens(rows * width),
        probabilities(rows * width),
        gaps(rows),
        hashes(rows),
        has_nan(new bool[rows]) {
    for (const auto& ids : asked) {
      asked_ids.insert(asked_ids.end(), ids.begin(), ids.end());
      asked_begin.push_back(asked_ids.size());
    }
    asked_probabilities.resize(asked_ids.size());
  }

  ExitAnswer answer(int row, std::span<const Token> holes) const {
    const auto is_hole = [&](Token id) {
      return std::binary_search(holes.begin(), holes.end(), id);
    };
    const int first = row * width;
    // The best is a hole where no logit is finite: the lowest id among equals.
    if (has_nan[row] || is_hole(tokens[first])) return {.numbers = false};
    int ranked = 1;
    while (ranked < width && !is_hole(tokens[first + ranked])) ++ranked;
    const auto part = [](const auto& values, int begin, int end) {
      return std::vector(values.begin() + begin, values.begin() + end);
    };
    return {.reference = tokens[first],
            .tokens = part(tokens, first, first + ranked),
            .probabilities = part(probabilities, first, first + ranked),
            .asked = part(asked_probabilities, asked_begin[row], asked_begin[row + 1]),
            .gap = gaps[row],
            .hash = hashes[row]};
  }

  int width;
  std::vector<Token> tokens, asked_ids;
  std::vector<std::int32_t> asked_begin{0};
  std::vector<float> probabilities, asked_probabilities, gaps;
  std::vector<std::uint64_t> hashes;
  std::unique_ptr<bool[]> has_nan;
};

class GreedySampler final : public Sampler {
 public:
  std::vector<ExitAnswer> answers(const LogitRows& rows, int width,
                                  const std::vector<std::vector<Token>>& asked,
                                  ThreadPool& pool) const override {
    Ranking r(rows.rows, std::min(width, rows.vocab), asked);
    cpu::topk_tokens({.logits = rows.logits,
                      .rows = rows.rows,
                      .vocab = rows.vocab,
                      .width = r.width,
                      .tokens = r.tokens.data(),
                      .probabilities = r.probabilities.data(),
                      .asked = r.asked_ids.data(),
                      .asked_begin = r.asked_begin.data(),
                      .asked_probabilities = r.asked_probabilities.data(),
                      .gaps = r.gaps.data(),
                      .hashes = r.hashes.data(),
                      .has_nan = r.has_nan.get()},
                     pool);
    std::vector<ExitAnswer> answers;
    for (int row = 0; row < rows.rows; ++row) answers.push_back(r.answer(row, rows.holes));
    return answers;
  }
};

}  // namespace

std::shared_ptr<const Sampler> greedy_sampler() {
  static const auto greedy = std::make_shared<const GreedySampler>();
  return greedy;
}

}  // namespace dex
