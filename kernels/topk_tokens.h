// The best tokens of a row of logits with their probabilities.
#pragma once
#include <cstdint>

#include "kernels/stream.h"
#include "kernels/thread_pool.h"
#include "kernels/types.h"

namespace dex {

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

namespace cpu {
void topk_tokens(const TopkTokens& p, ThreadPool& pool);
}  // namespace cpu

namespace cuda {
// Hashes are cpu::topk_tokens' for equal logits; probabilities agree within a few ulp. Wide
// rankings are slow: a pass each rank.
int topk_tokens(const TopkTokens& p, Workspace workspace, Stream stream);
std::size_t topk_tokens_workspace(const TopkTokens& p);  // bytes; the pointers do not matter
}  // namespace cuda

}  // namespace dex
