// The best tokens of a row of logits with their probabilities. A vocabulary is read by fixed
// slices. Each gives its largest logit, a sum of exponentials, a hash and its best tokens; combined
// in the order of slices these give the row's. So the bits do not depend on who owns which slices.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/rank_key.h"
#include "kernels/stream.h"
#include "kernels/thread_pool.h"
#include "kernels/types.h"

namespace dex {

constexpr int kVocabSlice = 1024;  // ids
constexpr int vocab_slices(int ids) { return ceil_div(ids, kVocabSlice); }
// Keys kept of a slice for a ranking of `width`: two at least, for the gap.
constexpr int kept_of_slice(int width) { return std::clamp(width, 2, kVocabSlice); }

struct VocabSlice {    // of a row
  float largest;       // -infinity where all logits are
  float sum;           // of e^(logit - largest); NaN where a logit is NaN or +infinity
  std::uint64_t hash;  // its part of the row's (kernels/logit_hash.h)
};

// Slices of rows, as the owner of the ids [first_id, first_id + ids) computes them.
struct TopkSlices {
  const float* logits = nullptr;  // (rows, ids)
  int rows = 0, ids = 0;
  int first_id = 0;  // a multiple of kVocabSlice
  int width = 1;     // of the ranking
  const std::int32_t* asked = nullptr;
  const std::int32_t* asked_begin = nullptr;  // (rows + 1)
  float* asked_logits = nullptr;              // as asked; only those of own ids are written
  VocabSlice* slices = nullptr;               // (slices, rows)
  // (slices, rows, kept_of_slice(width)): best first, 0 where there is none. Keys that others of
  // the same call beat too often to matter may be left out.
  RankKey* best = nullptr;
};

struct TopkTokens {
  const float* logits = nullptr;  // (rows, vocab)
  int rows = 0, vocab = 0;
  int width = 1;  // how many to rank, 1 .. vocab
  // (rows, width): by logit descending, the lowest id first among equals
  std::int32_t* tokens = nullptr;
  float* probabilities = nullptr;             // (rows, width): softmax over the row
  const std::int32_t* asked = nullptr;        // ids whose probability is wanted too, per row
  const std::int32_t* asked_begin = nullptr;  // (rows + 1)
  float* asked_probabilities = nullptr;       // as asked
  float* gaps = nullptr;                      // (rows): best logit minus second best
  std::uint64_t* hashes = nullptr;            // (rows): of the bits of the row's logits
  bool* has_nan = nullptr;                    // (rows)
};

// All slices of the vocabulary, in the order of ids, as TopkSlices left them for the same width.
struct TopkCombine {
  TopkTokens wanted;  // logits are not read; asked_probabilities holds the asked logits before
  const VocabSlice* slices = nullptr;
  const RankKey* best = nullptr;
};

namespace cpu {
void topk_slices(const TopkSlices& p, ThreadPool& pool);
void topk_combine(const TopkCombine& p, ThreadPool& pool);
void topk_tokens(const TopkTokens& p, ThreadPool& pool);  // both, over all slices
}  // namespace cpu

namespace cuda {
// Hashes and tokens are the CPU's for equal logits; probabilities agree within a few ulp. Wide
// rankings are slow: a pass each rank.
int topk_slices(const TopkSlices& p, Stream stream);
int topk_combine(const TopkCombine& p, Stream stream);
int topk_tokens(const TopkTokens& p, Workspace workspace, Stream stream);
std::size_t topk_tokens_workspace(const TopkTokens& p);  // bytes; the pointers do not matter
}  // namespace cuda

}  // namespace dex
