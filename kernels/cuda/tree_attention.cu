// Attention by chunks of 64 positions, each a softmax of its own (largest score m, sum l, sum of
// weighted values o), combined in the order of the chunks. Chunks lie at fixed absolute positions,
// so nothing in the sums tells where a key is kept or who else attends.
//
// Block (row tile, KV head, chunk) of 128 threads: keys and values of the chunk come to shared
// memory once for the query heads that share them, and stay there for the next rows of the tile
// while these see the same context. Keys and values of 1024 positions of a 70B layer are 4 MB
// beside its 1.7 GB of weights; what is spent here is about 4 fmaf a query, key and element of a
// head: 32 rows take 0.5 GFLOP.
//
// What chunks leave for the combination, 4 (head_dim + 2) bytes a row, head and chunk, would be 8.7
// GB for 128 rows of
// 64 heads of 128 over 131,072 keys: rows go through in groups that the workspace has room for.
#include "kernels/tree_attention.h"

#include <algorithm>

#include "kernels/ceil_div.h"
#include "kernels/cuda/cache_type.h"
#include "kernels/cuda/gpu_math.h"
#include "kernels/cuda/reduce.h"

namespace dex::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kChunk = 64;  // positions
constexpr int kMostTileRows = 8;
constexpr int kBlocksAtOnce = 528;                            // as for linear
constexpr std::size_t kMostScratch = std::size_t{512} << 20;  // beyond one row's
constexpr std::size_t kAlignment = 128;

struct ChunkSum {
  float largest, total;
};

struct AttentionJob {
  TreeAttention p;
  int chunks = 0, tile_rows = 0, head_set = 0;  // head_set: query heads a thread takes at a time
  int vectors = 0;     // 16 bytes each, of a head's row of keys in shared memory
  int padded_dim = 0;  // their elements
  bool aligned = false;
  float* values = nullptr;   // (rows, heads, chunks, head_dim): o
  ChunkSum* sums = nullptr;  // (rows, heads, chunks)

  __host__ __device__ int group() const { return p.heads / p.kv_heads; }
  __host__ __device__ int padded_group() const { return round_up(group(), head_set); }
  // One vector more than needed: rows then begin in different banks.
  __host__ __device__ int row_bytes() const { return (vectors + 1) * 16; }
  __host__ __device__ int shared_bytes() const {
    return 2 * kChunk * row_bytes() + padded_group() * (padded_dim + kChunk) * int(sizeof(float));
  }
  __host__ __device__ std::int64_t partial(int row, int head, int chunk) const {
    return (std::int64_t(row) * p.heads + head) * chunks + chunk;
  }
};

__device__ int keys_of(const TreeAttention& p, int row) {
  return p.context_size[row] + p.ancestors_begin[row + 1] - p.ancestors_begin[row];
}

__device__ std::int64_t cache_row(const TreeAttention& p, int row, int position) {
  const int beyond = position - p.context_size[row];
  return beyond < 0 ? p.context[position] : p.ancestors[p.ancestors_begin[row] + beyond];
}

// The chunk's keys or values as `row` sees them; zeros for positions from `count` on and past the
// end of a head.
template <class T>
__device__ void load_chunk(const AttentionJob& job, const void* cache, unsigned char* to, int row,
                           int first, int count) {
  constexpr int kEach = 16 / int(sizeof(T));
  const TreeAttention& p = job.p;
  for (int i = gpu::thread(); i < kChunk * job.vectors; i += kThreads) {
    const int key = i / job.vectors, at = i % job.vectors * kEach;
    const bool exists = key < count;
    const std::int64_t from =
        ((exists ? cache_row(p, row, first + key) : 0) * p.kv_heads + gpu::block_y()) * p.head_dim +
        at;
    auto* place = reinterpret_cast<T*>(to + key * job.row_bytes()) + at;
    if (job.aligned) {
      gpu::cp_async16(place, static_cast<const T*>(cache) + from, exists);
    } else {
      for (int j = 0; j < kEach; ++j)
        place[j] = exists && at + j < p.head_dim ? static_cast<const T*>(cache)[from + j] : T{};
    }
  }
}

__device__ void load_queries(const AttentionJob& job, float* q, int row) {
  const TreeAttention& p = job.p;
  const int group = job.group(), dim = job.padded_dim;
  const float* from = p.q + (std::int64_t(row) * p.heads + gpu::block_y() * group) * p.head_dim;
  for (int i = gpu::thread(); i < job.padded_group() * dim; i += kThreads) {
    const int head = i / dim, at = i % dim;
    q[i] = head < group && at < p.head_dim ? from[head * p.head_dim + at] : 0.0f;
  }
}

__device__ inline void widen(const float* from, float (&to)[4]) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}
__device__ inline void widen(const gpu::bf16* from, float (&to)[8]) {
  const uint4 pairs = *reinterpret_cast<const uint4*>(from);
  const std::uint32_t words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
  UNROLL for (int i = 0; i < 4; ++i) {
    to[2 * i] = gpu::bits_as<float>(words[i] << 16);
    to[2 * i + 1] = gpu::bits_as<float>(words[i] & 0xffff0000u);
  }
}

// scores[head][key]: a thread takes a key and kHeads heads, element after element.
template <class T, int kHeads>
__device__ void score(const AttentionJob& job, const unsigned char* keys, const float* q,
                      float* scores) {
  constexpr int kEach = 16 / int(sizeof(T));
  const int dim = job.padded_dim;
  for (int i = gpu::thread(); i < kChunk * job.padded_group() / kHeads; i += kThreads) {
    const int key = i % kChunk, head = i / kChunk * kHeads;
    const T* row = reinterpret_cast<const T*>(keys + key * job.row_bytes());
    float sums[kHeads] = {};
    for (int at = 0; at < dim; at += kEach) {
      float k[kEach];
      widen(row + at, k);
      UNROLL for (int h = 0; h < kHeads; ++h) {
        UNROLL for (int j = 0; j < kEach; j += 4) {
          const float4 query = *reinterpret_cast<const float4*>(q + (head + h) * dim + at + j);
          sums[h] =
              fmaf(query.w, k[j + 3],
                   fmaf(query.z, k[j + 2], fmaf(query.y, k[j + 1], fmaf(query.x, k[j], sums[h]))));
        }
      }
    }
    UNROLL for (int h = 0; h < kHeads; ++h) scores[(head + h) * kChunk + key] =
        sums[h] * job.p.scale;
  }
}

// Scores become weights, those of keys from `count` on 0; a warp per head. Sums are by place in the
// chunk.
__device__ void soften(const AttentionJob& job, float* scores, int row, int count) {
  const int lane = gpu::lane(), group = job.group();
  for (int head = gpu::warp(); head < group; head += kThreads / 32) {
    float* s = scores + head * kChunk;
    const float a = lane < count ? s[lane] : kLowest,
                b = lane + 32 < count ? s[lane + 32] : kLowest;
    const float largest = over_warp(fmaxf(a, b), Max()), base = largest == kLowest ? 0.0f : largest;
    const float wa = lane < count ? gpu::exp_of(a - base) : 0.0f,
                wb = lane + 32 < count ? gpu::exp_of(b - base) : 0.0f;
    s[lane] = wa;
    s[lane + 32] = wb;
    const float total = over_warp(wa + wb, Add());
    if (lane == 0)
      job.sums[job.partial(row, gpu::block_y() * group + head, gpu::block_z())] = {largest, total};
  }
}

// o: a thread takes an element of a head and kHeads heads, key after key.
template <class T, int kHeads>
__device__ void mix(const AttentionJob& job, const unsigned char* values, const float* weights,
                    int row) {
  const int head_dim = job.p.head_dim, group = job.group();
  for (int i = gpu::thread(); i < head_dim * (job.padded_group() / kHeads); i += kThreads) {
    const int at = i % head_dim, head = i / head_dim * kHeads;
    float sums[kHeads] = {};
    for (int key = 0; key < kChunk; key += 4) {
      float v[4];
      UNROLL for (int j = 0; j < 4; ++j) v[j] =
          loaded(reinterpret_cast<const T*>(values + (key + j) * job.row_bytes())[at]);
      UNROLL for (int h = 0; h < kHeads; ++h) {
        const float4 w = *reinterpret_cast<const float4*>(weights + (head + h) * kChunk + key);
        sums[h] = fmaf(w.w, v[3], fmaf(w.z, v[2], fmaf(w.y, v[1], fmaf(w.x, v[0], sums[h]))));
      }
    }
    const int first_head = gpu::block_y() * group + head;
    UNROLL for (int h = 0; h < kHeads; ++h) if (head + h < group)
        job.values[job.partial(row, first_head + h, gpu::block_z()) * head_dim + at] = sums[h];
  }
}

template <class T, int kHeads>
__global__ void attend_chunks_kernel(AttentionJob job) {
  DYN_SHARED(unsigned char, memory);
  const TreeAttention& p = job.p;
  unsigned char *keys = memory, *values = keys + kChunk * job.row_bytes();
  float* q = reinterpret_cast<float*>(values + kChunk * job.row_bytes());
  float* scores = q + job.padded_group() * job.padded_dim;

  const int first = gpu::block_z() * kChunk, first_row = gpu::block() * job.tile_rows;
  bool context_loaded = false;  // the whole chunk is context, and here
  for (int row = first_row; row < min(first_row + job.tile_rows, p.rows); ++row) {
    const int count = min(keys_of(p, row) - first, kChunk);
    if (count <= 0) continue;
    const bool context_only = first + kChunk <= p.context_size[row];
    if (!(context_loaded && context_only)) {
      __syncthreads();  // the row before is done with its values
      load_chunk<T>(job, p.keys, keys, row, first, count);
      gpu::cp_async_commit();
      load_chunk<T>(job, p.values, values, row, first, count);
      gpu::cp_async_commit();
      context_loaded = context_only;
    }
    load_queries(job, q, row);
    gpu::cp_async_wait<1>();
    __syncthreads();
    score<T, kHeads>(job, keys, q, scores);
    __syncthreads();
    soften(job, scores, row, count);
    gpu::cp_async_wait<0>();
    __syncthreads();
    mix<T, kHeads>(job, values, scores, row);
  }
}

// Block (row, head): a thread per element of the head.
__global__ void combine_chunks_kernel(AttentionJob job) {
  const TreeAttention& p = job.p;
  const int head = gpu::block_y(), row = gpu::block(), chunks = ceil_div(keys_of(p, row), kChunk);
  const ChunkSum* sums = job.sums + job.partial(row, head, 0);
  const float* values = job.values + job.partial(row, head, 0) * p.head_dim;
  float largest = kLowest;
  for (int c = 0; c < chunks; ++c) largest = fmaxf(largest, sums[c].largest);
  const float base = largest == kLowest ? 0.0f : largest;
  float total = 0;
  for (int c = 0; c < chunks; ++c)
    total = fmaf(sums[c].total, gpu::exp_of(sums[c].largest - base), total);
  float* out = p.out + (std::int64_t(row) * p.heads + head) * p.head_dim;
  for (int at = gpu::thread(); at < p.head_dim; at += kThreads) {
    float sum = 0;
    for (int c = 0; c < chunks; ++c)
      sum =
          fmaf(values[std::int64_t(c) * p.head_dim + at], gpu::exp_of(sums[c].largest - base), sum);
    out[at] = sum / total;
  }
}

int chunks_of(const TreeAttention& p) { return ceil_div(p.most_keys, kChunk); }

// Of `rows` rows: the values first, then the sums.
std::size_t partials_of(const TreeAttention& p, int rows) {
  return std::size_t(rows) * std::size_t(p.heads) * std::size_t(chunks_of(p));
}
std::size_t sums_at(const TreeAttention& p, int rows) {
  const std::size_t bytes = partials_of(p, rows) * std::size_t(p.head_dim) * sizeof(float);
  return round_up(bytes, kAlignment);
}
std::size_t workspace_of(const TreeAttention& p, int rows) {
  return sums_at(p, rows) + partials_of(p, rows) * sizeof(ChunkSum);
}

// As many rows as fit into `bytes`; whole tiles where there are several.
int rows_within(const TreeAttention& p, std::size_t bytes) {
  if (bytes >= workspace_of(p, p.rows)) return p.rows;
  int rows = int(bytes / workspace_of(p, 1));  // one row's has room for what is lost to alignment
  return rows > kMostTileRows ? rows / kMostTileRows * kMostTileRows : rows;
}

TreeAttention part_of(const TreeAttention& p, int first, int rows) {
  const std::int64_t elements = std::int64_t(first) * p.heads * p.head_dim;
  TreeAttention part = p;
  part.q += elements;
  part.out += elements;
  part.context_size += first;
  part.ancestors_begin += first;
  part.rows = rows;
  return part;
}

template <class T>
int start(const AttentionJob& job, Stream stream) {
  const TreeAttention& p = job.p;
  const dim3 grid(unsigned(ceil_div(p.rows, job.tile_rows)), unsigned(p.kv_heads),
                  unsigned(job.chunks));
  const auto kernel = job.head_set == 1 ? attend_chunks_kernel<T, 1> : attend_chunks_kernel<T, 4>;
  if (const int error =
          gpu::launch(kernel, grid, kThreads, std::size_t(job.shared_bytes()), stream, job))
    return error;
  return gpu::launch(combine_chunks_kernel, dim3(unsigned(p.rows), unsigned(p.heads)), kThreads, 0,
                     stream, job);
}

}  // namespace

std::size_t tree_attention_workspace(const TreeAttention& p) {
  if (p.rows <= 0) return 0;
  return workspace_of(p, std::max(1, rows_within(p, kMostScratch)));
}

int tree_attention(const TreeAttention& p, Workspace workspace, Stream stream) {
  if (p.rows <= 0) return 0;
  const int rows_at_once = rows_within(p, workspace.bytes);
  if (rows_at_once == 0) return kTooSmall;
  const int size = size_of(p.dtype);
  AttentionJob job{.p = p,
                   .chunks = chunks_of(p),
                   .head_set = p.heads == p.kv_heads ? 1 : 4,
                   .vectors = ceil_div(p.head_dim * size, 16)};
  job.padded_dim = job.vectors * 16 / size;
  job.tile_rows = int(std::clamp<std::int64_t>(
      std::int64_t{job.chunks} * p.kv_heads * rows_at_once / kBlocksAtOnce, 1, kMostTileRows));
  job.aligned = p.head_dim * size % 16 == 0 && reinterpret_cast<std::uintptr_t>(p.keys) % 16 == 0 &&
                reinterpret_cast<std::uintptr_t>(p.values) % 16 == 0;
  job.values = static_cast<float*>(workspace.memory);
  job.sums =
      reinterpret_cast<ChunkSum*>(static_cast<char*>(workspace.memory) + sums_at(p, rows_at_once));
  int error = 0;
  for (int first = 0; first < p.rows && !error; first += rows_at_once) {
    job.p = part_of(p, first, std::min(rows_at_once, p.rows - first));
    error = p.dtype == Dtype::f32 ? start<float>(job, stream) : start<gpu::bf16>(job, stream);
  }
  return error;
}

}  // namespace dex::cuda
