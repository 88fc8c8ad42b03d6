// The best tokens of a row of logits. Block (row, slice) sums, hashes and ranks a slice of the
// vocabulary held in shared memory; a second kernel, a block per row, combines the slices in order.
#include "kernels/topk_tokens.h"

#include <algorithm>

#include "kernels/cuda/gpu_math.h"
#include "kernels/cuda/reduce.h"
#include "kernels/logit_hash.h"

namespace dex::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// Calls take(i, key) for the `width` best keys of those that key(0 .. count) gives, best first; 0
// when there are no more. All threads of the block call it. They meet once a key, in two places in
// turn.
template <class KeyAt, class Take>
__device__ void pick_best(int count, int width, RankKey (&warps)[2][kWarps], const KeyAt& key,
                          const Take& take) {
  RankKey before = ~RankKey{0};
  for (int i = 0; i < width; ++i) {
    RankKey best = 0;
    for (int j = gpu::thread(); j < count; j += kThreads) {
      const RankKey here = key(j);
      if (here < before && best < here) best = here;
    }
    before = over_block<kThreads>(best, Max(), warps[i % 2]);
    if (gpu::thread() == 0) take(i, before);
  }
}

struct SliceOf {  // what a block holds of a row
  const float* logits;
  int count, first;
};

__device__ float sum_of(const SliceOf& slice, float largest, float* warps) {
  const float base = largest == kLowest ? 0.0f : largest;
  float sum = 0;
  for (int i = gpu::thread(); i < slice.count; i += kThreads)
    sum += gpu::exp_of(slice.logits[i] - base);
  return over_block<kThreads>(sum, Add(), warps);
}

__device__ std::uint64_t hash_of(const SliceOf& slice, RankKey* warps) {
  const auto bits = [&](int i) {
    return i < slice.count ? gpu::bits_as<std::uint32_t>(slice.logits[i]) : 0u;
  };
  RankKey hash = 0;
  for (int i = 2 * gpu::thread(); i < slice.count; i += 2 * kThreads)
    hash += mixed_pair(bits(i), bits(i + 1), (slice.first + i) / 2);
  return over_block<kThreads>(hash, Add(), warps);
}

__device__ void find_asked(const TopkSlices& p, const SliceOf& slice) {
  if (!p.asked) return;
  const int row = gpu::block();
  for (int i = p.asked_begin[row] + gpu::thread(); i < p.asked_begin[row + 1]; i += kThreads)
    if (const int at = p.asked[i] - slice.first; at >= 0 && at < slice.count)
      p.asked_logits[i] = slice.logits[at];
}

__global__ void slices_kernel(TopkSlices p) {
  SHARED(float[kVocabSlice], logits);
  SHARED(RankKey[2][kWarps], key_warps);
  SHARED(float[2][kWarps], warps);
  const int row = gpu::block(), from = gpu::block_y() * kVocabSlice;
  const SliceOf slice{logits, min(kVocabSlice, p.ids - from), p.first_id + from};
  const float* source = p.logits + std::int64_t{row} * p.ids + from;
  float largest = kLowest;
  for (int i = gpu::thread(); i < slice.count; i += kThreads) {
    logits[i] = source[i];
    largest = fmaxf(largest, logits[i]);
  }
  largest = over_block<kThreads>(largest, Max(), warps[0]);
  const float sum = sum_of(slice, largest, warps[1]);
  const std::uint64_t hash = hash_of(slice, key_warps[1]);
  const std::int64_t at = std::int64_t{gpu::block_y()} * p.rows + row;
  if (gpu::thread() == 0) p.slices[at] = {largest, sum, hash};
  find_asked(p, slice);
  const int kept = kept_of_slice(p.width);
  pick_best(
      slice.count, kept, key_warps, [&](int i) { return rank_key(logits[i], slice.first + i); },
      [&](int i, RankKey key) { p.best[at * kept + i] = key; });
}

struct Softmax {
  float base, sum;
  __device__ float operator()(float logit) const {
    const float e = gpu::exp_of(logit - base);
    return sum > 0 ? e / sum : e;
  }
};

// Of a row's slices, `stride` apart; in their order. `sums` are used in turn, which spares a
// barrier.
__device__ Softmax softmax_of(const VocabSlice* slices, int count, int stride,
                              float (&sums)[2][kThreads], float* warps) {
  float largest = kLowest;
  for (int s = gpu::thread(); s < count; s += kThreads)
    largest = fmaxf(largest, slices[std::int64_t{s} * stride].largest);
  largest = over_block<kThreads>(largest, Max(), warps);
  Softmax softmax{largest == kLowest ? 0.0f : largest, 0.0f};
  for (int first = 0, turn = 0; first < count; first += kThreads, turn = 1 - turn) {
    if (first + gpu::thread() < count) {
      const VocabSlice& slice = slices[std::int64_t{first + gpu::thread()} * stride];
      sums[turn][gpu::thread()] = slice.sum * gpu::exp_of(slice.largest - softmax.base);
    }
    __syncthreads();
    for (int i = 0; i < min(kThreads, count - first); ++i) softmax.sum += sums[turn][i];
  }
  return softmax;
}

__device__ std::uint64_t hash_of(const VocabSlice* slices, int count, int stride, RankKey* warps) {
  RankKey hash = 0;
  for (int s = gpu::thread(); s < count; s += kThreads)
    hash += slices[std::int64_t{s} * stride].hash;
  return over_block<kThreads>(hash, Add(), warps);
}

__global__ void combine_kernel(TopkCombine job) {
  SHARED(RankKey[2][kWarps], key_warps);
  SHARED(float[2][kThreads], sums);
  SHARED(float[kWarps], warps);
  const TopkTokens& p = job.wanted;
  const int row = gpu::block(), slices = vocab_slices(p.vocab), kept = kept_of_slice(p.width);
  const Softmax softmax = softmax_of(job.slices + row, slices, p.rows, sums, warps);
  const std::uint64_t hash = hash_of(job.slices + row, slices, p.rows, key_warps[1]);
  if (gpu::thread() == 0 && p.hashes) p.hashes[row] = hash;
  if (gpu::thread() == 0 && p.has_nan) p.has_nan[row] = softmax.sum != softmax.sum;
  if (p.asked)
    for (int i = p.asked_begin[row] + gpu::thread(); i < p.asked_begin[row + 1]; i += kThreads)
      p.asked_probabilities[i] = softmax(p.asked_probabilities[i]);
  const std::int64_t at = std::int64_t{row} * p.width;
  RankKey first = 0;
  pick_best(
      slices * kept, max(2, p.width), key_warps,
      [&](int i) { return job.best[(std::int64_t{i / kept} * p.rows + row) * kept + i % kept]; },
      [&](int i, RankKey key) {
        if (i == 0) first = key;
        if (i == 1 && p.gaps) p.gaps[row] = gap_of(first, key);
        if (i >= p.width) return;
        p.tokens[at + i] = token_of(key);
        if (p.probabilities) p.probabilities[at + i] = softmax(logit_of(key));
      });
}

// Of keys, then of sums.
std::size_t key_bytes(const TopkTokens& p) {
  return std::size_t(p.rows) * std::size_t(vocab_slices(p.vocab) * kept_of_slice(p.width)) *
         sizeof(RankKey);
}

}  // namespace

int topk_slices(const TopkSlices& p, Stream stream) {
  if (p.rows <= 0) return 0;
  const dim3 grid(unsigned(p.rows), unsigned(vocab_slices(p.ids)));
  return gpu::launch(slices_kernel, grid, kThreads, 0, stream, p);
}

int topk_combine(const TopkCombine& p, Stream stream) {
  if (p.wanted.rows <= 0) return 0;
  return gpu::launch(combine_kernel, dim3(unsigned(p.wanted.rows)), kThreads, 0, stream, p);
}

std::size_t topk_tokens_workspace(const TopkTokens& p) {
  if (p.rows <= 0) return 0;
  return key_bytes(p) +
         std::size_t(p.rows) * std::size_t(vocab_slices(p.vocab)) * sizeof(VocabSlice);
}

int topk_tokens(const TopkTokens& p, Workspace workspace, Stream stream) {
  if (p.rows <= 0) return 0;
  if (workspace.bytes < topk_tokens_workspace(p)) return kTooSmall;
  auto* best = static_cast<RankKey*>(workspace.memory);
  auto* slices = reinterpret_cast<VocabSlice*>(static_cast<char*>(workspace.memory) + key_bytes(p));
  const int error = topk_slices({.logits = p.logits,
                                 .rows = p.rows,
                                 .ids = p.vocab,
                                 .width = p.width,
                                 .asked = p.asked,
                                 .asked_begin = p.asked_begin,
                                 .asked_logits = p.asked_probabilities,
                                 .slices = slices,
                                 .best = best},
                                stream);
  return error ? error : topk_combine({.wanted = p, .slices = slices, .best = best}, stream);
}

}  // namespace dex::cuda
