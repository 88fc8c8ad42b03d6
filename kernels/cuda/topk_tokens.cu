// The best tokens of a row of logits. Block (slice, row) ranks 4096 logits held in shared memory
// and sums their softmax; a second kernel, a block per row, merges the slices in order. The logits
// are read twice (the second time for the hash): 0.5 MB a row of 128 k tokens beside the 2 GB of
// head weights that made them.
#include "kernels/topk_tokens.h"

#include <algorithm>

#include "kernels/cuda/gpu_math.h"
#include "kernels/cuda/reduce.h"

namespace dex::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSlice = 4096;  // tokens
using Key = unsigned long long;

// Keys order as tokens rank: by logit, then the lowest id first. Zeros of both signs are equal, NaN
// counts as -infinity. 0 is no key.
__device__ Key key_of(float logit, int token) {
  const float plain = logit == logit ? logit + 0.0f : kLowest;
  const std::uint32_t bits = gpu::bits_as<std::uint32_t>(plain);
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return Key(ordered) << 32 | ~std::uint32_t(token);
}
__device__ int token_of(Key key) { return int(~std::uint32_t(key)); }
__device__ float logit_of(Key key) {
  const auto ordered = std::uint32_t(key >> 32);
  return gpu::bits_as<float>(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

struct SliceSum {
  float largest, total;
};

struct TopkJob {
  TopkTokens p;
  int slices = 0, width = 0;  // width: keys kept of a slice and of the row, at least 2 for the gap
  Key* keys = nullptr;        // (rows, slices, width): best first, 0 where a slice has no more
  SliceSum* sums = nullptr;   // (rows, slices)
};

__device__ const float* logits_of(const TopkTokens& p, int row) {
  return p.logits + std::int64_t(row) * p.vocab;
}

// Calls take(i, key) for the `width` best keys of those that key(0 .. count) gives, best first; 0
// when there are no more. All threads of the block call it. They meet once a key, in two places in
// turn.
template <class KeyAt, class Take>
__device__ void pick_best(int count, int width, Key (&warps)[2][kThreads / 32], const KeyAt& key,
                          const Take& take) {
  Key before = ~Key{0};
  for (int i = 0; i < width; ++i) {
    Key best = 0;
    for (int j = int(threadIdx.x); j < count; j += kThreads) {
      const Key here = key(j);
      if (here < before && best < here) best = here;
    }
    before = over_block<kThreads>(best, Max(), warps[i % 2]);
    if (threadIdx.x == 0) take(i, before);
  }
}

__global__ void rank_slice_kernel(TopkJob job) {
  SHARED(float[kSlice], slice);
  SHARED(Key[2][kThreads / 32], key_warps);
  SHARED(float[2][kThreads / 32], warps);
  const TopkTokens& p = job.p;
  const int row = int(blockIdx.y), first = int(blockIdx.x) * kSlice,
            count = min(kSlice, p.vocab - first);
  const float* logits = logits_of(p, row) + first;
  float largest = kLowest;
  for (int i = int(threadIdx.x); i < count; i += kThreads) {
    slice[i] = logits[i];
    largest = fmaxf(largest, slice[i]);
  }
  largest = over_block<kThreads>(largest, Max(), warps[0]);
  const float base = largest == kLowest ? 0.0f : largest;
  float total = 0;
  for (int i = int(threadIdx.x); i < count; i += kThreads) total += gpu::exp_of(slice[i] - base);
  total = over_block<kThreads>(total, Add(), warps[1]);
  const std::int64_t at = std::int64_t(row) * job.slices + blockIdx.x;
  if (threadIdx.x == 0) job.sums[at] = {largest, total};
  pick_best(
      count, job.width, key_warps, [&](int i) { return key_of(slice[i], first + i); },
      [&](int i, Key key) { job.keys[at * job.width + i] = key; });
}

struct Softmax {
  float base, total;
  __device__ float operator()(float logit) const {
    const float e = gpu::exp_of(logit - base);
    return total > 0 ? e / total : e;
  }
};

__device__ Softmax softmax_of(const SliceSum* sums, int slices) {
  float largest = kLowest;
  for (int s = 0; s < slices; ++s) largest = fmaxf(largest, sums[s].largest);
  const float base = largest == kLowest ? 0.0f : largest;
  float total = 0;
  for (int s = 0; s < slices; ++s)
    total = fmaf(sums[s].total, gpu::exp_of(sums[s].largest - base), total);
  return {base, total};
}

// The best and the second best logit apart, as cpu::topk_tokens has it.
__device__ float gap_of(Key first, Key second) {
  if (second == 0 || logit_of(second) == kLowest)
    return logit_of(first) == kLowest ? 0.0f : -kLowest;
  return logit_of(first) - logit_of(second);
}

__global__ void merge_slices_kernel(TopkJob job) {
  SHARED(Key[2][kThreads / 32], warps);
  const TopkTokens& p = job.p;
  const int row = int(blockIdx.x);
  const Key* keys = job.keys + std::int64_t(row) * job.slices * job.width;
  const Softmax softmax = softmax_of(job.sums + std::int64_t(row) * job.slices, job.slices);
  Key first = 0;
  pick_best(
      job.slices * job.width, job.width, warps, [&](int i) { return keys[i]; },
      [&](int i, Key key) {
        if (i == 0) first = key;
        if (i == min(1, job.width - 1) && p.gaps) p.gaps[row] = gap_of(first, i == 1 ? key : 0);
        if (i >= p.width) return;
        p.tokens[std::int64_t(row) * p.width + i] = token_of(key);
        if (p.probabilities)
          p.probabilities[std::int64_t(row) * p.width + i] = softmax(logit_of(key));
      });
  if (p.asked)
    for (int i = p.asked_begin[row] + int(threadIdx.x); i < p.asked_begin[row + 1]; i += kThreads)
      p.asked_probabilities[i] = softmax(logits_of(p, row)[p.asked[i]]);
  if (threadIdx.x == 0 && p.has_nan) p.has_nan[row] = softmax.total != softmax.total;
}

// ---- The hash of cpu::topk_tokens: eight chains side by side, so eight lanes a row. Each step
// waits for the one before: some
// 30 cycles, 0.15 ms for 128 k tokens however many rows, while tensor cores stand idle.

constexpr int kChains = 8;
constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15u;

__device__ std::uint64_t mixed(std::uint64_t word) {
  const std::uint64_t product = (word ^ word >> 32) * kPrime;
  return product << 29 | product >> 35;
}

__global__ void hash_kernel(TopkTokens p) {
  const int row = int(blockIdx.x * 32 + threadIdx.x) / kChains, c = int(threadIdx.x) % kChains;
  const float* logits = logits_of(p, min(row, p.rows - 1));
  const auto bits = [&](int i) { return std::uint64_t{gpu::bits_as<std::uint32_t>(logits[i])}; };
  std::uint64_t chain = kPrime * std::uint64_t(c + 1);
  int i = 0;
  for (; i + 2 * kChains <= p.vocab; i += 2 * kChains)
    chain = mixed(chain ^ (bits(i + 2 * c) | bits(i + 2 * c + 1) << 32));
  std::uint64_t hash = std::uint64_t(p.vocab);
  for (; i < p.vocab; ++i) hash = mixed(hash ^ bits(i));
  for (int j = 0; j < kChains; ++j)
    hash =
        mixed(hash ^ __shfl_sync(0xffffffffu, static_cast<unsigned long long>(chain), j, kChains));
  if (row < p.rows && c == 0) p.hashes[row] = hash;
}

int slices_of(const TopkTokens& p) { return (p.vocab + kSlice - 1) / kSlice; }
int kept_of(const TopkTokens& p) { return std::min(std::max(p.width, 2), p.vocab); }
std::size_t keys_of(const TopkTokens& p) {
  return std::size_t(p.rows) * std::size_t(slices_of(p) * kept_of(p));
}

}  // namespace

std::size_t topk_tokens_workspace(const TopkTokens& p) {
  if (p.rows <= 0) return 0;
  return keys_of(p) * sizeof(Key) + std::size_t(p.rows * slices_of(p)) * sizeof(SliceSum);
}

int topk_tokens(const TopkTokens& p, Workspace workspace, Stream stream) {
  if (p.rows <= 0) return 0;
  if (workspace.bytes < topk_tokens_workspace(p)) return kTooSmall;
  const TopkJob job{
      .p = p,
      .slices = slices_of(p),
      .width = kept_of(p),
      .keys = static_cast<Key*>(workspace.memory),
      .sums = reinterpret_cast<SliceSum*>(static_cast<Key*>(workspace.memory) + keys_of(p))};
  const auto rows = unsigned(p.rows);
  if (const int error = gpu::launch(rank_slice_kernel, dim3(unsigned(job.slices), rows), kThreads,
                                    0, stream, job))
    return error;
  if (const int error = gpu::launch(merge_slices_kernel, dim3(rows), kThreads, 0, stream, job))
    return error;
  return p.hashes ? gpu::launch(hash_kernel, dim3((rows * kChains + 31) / 32), 32, 0, stream, p)
                  : 0;
}

}  // namespace dex::cuda
