#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/error.h"
#include "common/model/sampler.h"
#include "kernels/topk_tokens.h"

namespace dex {
namespace {

// The ids asked for, row after row, as the kernels take them.
struct Asked {
  explicit Asked(const ExitQuestion& question) : begin(std::size_t(question.rows()) + 1) {
    for (std::size_t row = 0; row < question.asked.size(); ++row) {
      const auto& of_row = question.asked[row];
      ids.insert(ids.end(), of_row.begin(), of_row.end());
      begin[row + 1] = std::int32_t(ids.size());
    }
  }

  std::vector<Token> ids;
  std::vector<std::int32_t> begin;  // (rows + 1)
};

// What owners found, laid end to end: (slices, rows) and (slices, rows, kept).
struct AllSlices {
  AllSlices(std::span<const RowSlices> parts, int rows, int vocab, int width)
      : rows(std::size_t(rows)), kept(std::size_t(kept_of_slice(width))) {
    for (const RowSlices& part : parts)
      slices.insert(slices.end(), part.slices.begin(), part.slices.end());
    require(slices.size() == std::size_t(vocab_slices(vocab)) * this->rows, ExitCode::bug,
            "{} slices of {} rows, wanted {} of each row", slices.size(), rows,
            vocab_slices(vocab));
    best.resize(slices.size() * kept);
    taken.resize(slices.size());
    for (const RowSlices& part : parts) place(part);
    for (std::size_t row = 0; row < this->rows; ++row) {
      std::size_t keys = 0;
      for (std::size_t at = row; at < taken.size(); at += this->rows) keys += taken[at];
      require(keys >= std::size_t(width), ExitCode::bug, "{} best tokens of a row, wanted {}", keys,
              width);
    }
  }

  void place(const RowSlices& part) {
    require(part.keys.size() == rows + 1 && part.keys.front() == 0 &&
                std::is_sorted(part.keys.begin(), part.keys.end()) &&
                std::size_t(part.keys.back()) == part.best.size(),
            ExitCode::bug, "{} best tokens of {} rows, wanted of {}", part.best.size(),
            std::ssize(part.keys) - 1, rows);
    for (std::size_t row = 0; row < rows; ++row)
      for (auto i = part.keys[row]; i < part.keys[row + 1]; ++i) {
        const RankKey key = part.best[std::size_t(i)];
        const std::size_t at = std::size_t(token_of(key)) / kVocabSlice * rows + row;
        require(at < taken.size() && taken[at] < kept, ExitCode::bug,
                "token {} is not one of its slice's best", token_of(key));
        best[at * kept + taken[at]++] = key;
      }
  }

  std::size_t rows, kept;
  std::vector<VocabSlice> slices;
  std::vector<RankKey> best;
  std::vector<std::size_t> taken;  // (slices, rows)
};

// What the kernel fills, row by row.
struct Ranking {
  Ranking(int rows, int width)
      : width(width),
        tokens(std::size_t(rows) * std::size_t(width)),
        probabilities(tokens.size()),
        gaps(std::size_t(rows)),
        hashes(std::size_t(rows)),
        has_nan(new bool[std::size_t(rows)]) {}

  ExitAnswer answer(int row, const Asked& asked, std::span<const Token> holes) const {
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
            .asked = part(asked_probabilities, asked.begin[row], asked.begin[row + 1]),
            .gap = gaps[row],
            .hash = hashes[row]};
  }

  int width;
  std::vector<Token> tokens;
  std::vector<float> probabilities, asked_probabilities, gaps;
  std::vector<std::uint64_t> hashes;
  std::unique_ptr<bool[]> has_nan;
};

// An id has its logit from its owner, and -infinity from the others.
std::vector<float> asked_logits(std::span<const RowSlices> parts, std::size_t size) {
  std::vector<float> logits(size, kLowest);
  for (const RowSlices& part : parts) {
    require(part.asked.size() == size, ExitCode::bug, "logits of {} ids, wanted of {}",
            part.asked.size(), size);
    for (std::size_t i = 0; i < size; ++i)
      if (part.asked[i] != kLowest) logits[i] = part.asked[i];
  }
  return logits;
}

class GreedySampler final : public Sampler {
 public:
  RowSlices look(const LogitRows& rows, const ExitQuestion& question,
                 ThreadPool& pool) const override {
    const Asked asked(question);
    const std::size_t slices = std::size_t(vocab_slices(rows.share.ids)) * std::size_t(rows.rows);
    const auto kept = std::size_t(kept_of_slice(question.width));
    thread_local std::vector<RankKey> best;
    best.resize(std::max(best.size(), slices * kept));
    RowSlices found{.slices = std::vector<VocabSlice>(slices),
                    .asked = std::vector<float>(asked.ids.size(), kLowest)};
    cpu::topk_slices({.logits = rows.logits,
                      .rows = rows.rows,
                      .ids = rows.share.ids,
                      .first_id = rows.share.first_id,
                      .width = question.width,
                      .asked = asked.ids.data(),
                      .asked_begin = asked.begin.data(),
                      .asked_logits = found.asked.data(),
                      .slices = found.slices.data(),
                      .best = best.data()},
                     pool);
    for (int row = 0; row < rows.rows; ++row) {
      for (std::size_t at = std::size_t(row); at < slices; at += std::size_t(rows.rows))
        for (std::size_t i = at * kept; i < (at + 1) * kept && best[i] != 0; ++i)
          found.best.push_back(best[i]);
      found.keys.push_back(std::int32_t(found.best.size()));
    }
    return found;
  }

  std::vector<ExitAnswer> answers(std::span<const RowSlices> parts, const ExitQuestion& question,
                                  const Vocabulary& vocabulary, ThreadPool& pool) const override {
    const int rows = question.rows(), width = std::min(question.width, vocabulary.ids);
    const Asked asked(question);
    const AllSlices all(parts, rows, vocabulary.ids, width);
    Ranking r(rows, width);
    r.asked_probabilities = asked_logits(parts, asked.ids.size());
    cpu::topk_combine({.wanted = {.rows = rows,
                                  .vocab = vocabulary.ids,
                                  .width = width,
                                  .tokens = r.tokens.data(),
                                  .probabilities = r.probabilities.data(),
                                  .asked = asked.ids.data(),
                                  .asked_begin = asked.begin.data(),
                                  .asked_probabilities = r.asked_probabilities.data(),
                                  .gaps = r.gaps.data(),
                                  .hashes = r.hashes.data(),
                                  .has_nan = r.has_nan.get()},
                       .slices = all.slices.data(),
                       .best = all.best.data()},
                      pool);
    std::vector<ExitAnswer> answers;
    for (int row = 0; row < rows; ++row) answers.push_back(r.answer(row, asked, vocabulary.holes));
    return answers;
  }
};

}  // namespace

std::shared_ptr<const Sampler> greedy_sampler() {
  static const auto greedy = std::make_shared<const GreedySampler>();
  return greedy;
}

}  // namespace dex
